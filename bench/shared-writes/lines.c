/* A valgrind tool that counts, by cache line and thread, how often memory is read and written.
 *
 * It counts while there is a file FOLDER/collect (--folder=FOLDER); when that is gone it writes FOLDER/result: a line for each
 * cache line that one thread wrote and another one used: its address, `thread:writes:reads` of each, and the addresses
 * of instructions that used it since it was so, with those of their callers, `w` or `r` before each; and a line `thread NUMBER
 * ID` for each thread, with the kernel's number of it. Valgrind runs one thread at a time, so nothing here needs a lock. */

#include "pub_tool_basics.h"
#include "pub_tool_vki.h"
#include "pub_tool_hashtable.h"
#include "pub_tool_libcassert.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_stacktrace.h"
#include "pub_tool_machine.h"
#include "pub_tool_mallocfree.h"
#include "pub_tool_options.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_tooliface.h"

#define LINE 6
#define THREADS 24
#define PLACES 8
#define CALLERS 8
/* Accesses between two looks for the file: at most a few requests' work. */
#define LOOK 20000

typedef struct {
    UWord line;
    UInt writes[THREADS], reads[THREADS];
    /* Instructions, the highest bit says that it wrote; and where they were called from. */
    UWord places[PLACES];
    Addr callers[PLACES][CALLERS];
} Use;

static const UWord WROTE = 1UL << 63;
static const HChar *folder = "/tmp";
static Bool collecting = False;
static UInt until_look = LOOK;
static Use *table = NULL;
static UWord mask = 0, used = 0;
static Int kernels[THREADS];

static const HChar *in_folder(const HChar *name)
{
    static HChar path[512];
    VG_(snprintf)(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static Use *find(UWord line)
{
    UWord at = (line * 0x9E3779B97F4A7C15UL) >> 40;
    for (;; at++) {
        Use *use = &table[at & mask];
        if (use->line == line)
            return use;
        if (use->line == 0) {
            tl_assert(++used < mask);
            use->line = line;
            return use;
        }
    }
}

static Bool is_shared(const Use *use)
{
    UInt threads = 0, writers = 0;
    for (UInt i = 0; i < THREADS; i++) {
        threads += use->writes[i] + use->reads[i] > 0;
        writers += use->writes[i] > 0;
    }
    return threads > 1 && writers > 0;
}

static void write_result(void)
{
    VgFile *file = VG_(fopen)(in_folder("new"), VKI_O_WRONLY | VKI_O_CREAT | VKI_O_TRUNC, 0644);
    tl_assert(file);
    for (UInt i = 0; i < THREADS; i++)
        if (kernels[i])
            VG_(fprintf)(file, "thread %u %d\n", i, kernels[i]);
    for (UWord at = 0; at <= mask; at++) {
        const Use *use = &table[at];
        if (use->line == 0 || !is_shared(use))
            continue;
        VG_(fprintf)(file, "%lx", use->line << LINE);
        for (UInt i = 0; i < THREADS; i++)
            if (use->writes[i] + use->reads[i] > 0)
                VG_(fprintf)(file, " %u:%u:%u", i, use->writes[i], use->reads[i]);
        for (UInt i = 0; i < PLACES && use->places[i]; i++) {
            VG_(fprintf)(file, " %c%lx", use->places[i] & WROTE ? 'w' : 'r', use->places[i] & ~WROTE);
            for (UInt j = 1; j < CALLERS && use->callers[i][j]; j++)
                VG_(fprintf)(file, ",%lx", use->callers[i][j]);
        }
        VG_(fprintf)(file, "\n");
    }
    VG_(fclose)(file);
    HChar from[512];
    VG_(strcpy)(from, in_folder("new"));
    VG_(rename)(from, in_folder("result"));
    VG_(memset)(table, 0, (mask + 1) * sizeof(Use));
    VG_(memset)(kernels, 0, sizeof kernels);
    used = 0;
}

static void look(void)
{
    struct vg_stat stat;
    Bool wanted = !sr_isError(VG_(stat)(in_folder("collect"), &stat));
    until_look = LOOK;
    if (collecting && !wanted)
        write_result();
    collecting = wanted;
}

static void note_place(Use *use, UWord seen, ThreadId thread)
{
    for (UInt i = 0; i < PLACES && use->places[i] != seen; i++) {
        if (use->places[i] == 0) {
            use->places[i] = seen;
            VG_(get_StackTrace)(thread, use->callers[i], CALLERS, NULL, NULL, 0);
            return;
        }
    }
}

/* `what`: the size, and whether it writes in the bit above. */
static VG_REGPARM(3) void note(UWord address, UWord what, UWord place)
{
    if (--until_look == 0)
        look();
    if (!collecting)
        return;
    UWord size = what & 0xffff, writes = what >> 16, thread = VG_(get_running_tid)();
    if (thread >= THREADS)
        thread = THREADS - 1;
    if (kernels[thread] == 0)
        kernels[thread] = VG_(gettid)();
    for (UWord line = address >> LINE; line <= (address + size - 1) >> LINE; line++) {
        Use *use = find(line);
        if (writes)
            use->writes[thread]++;
        else
            use->reads[thread]++;
        if (is_shared(use))
            note_place(use, place | (writes ? WROTE : 0), thread);
    }
}

static void add(IRSB *out, IRExpr *address, Int size, Bool writes, Addr place, IRExpr *guard)
{
    IRExpr **arguments = mkIRExprVec_3(address, mkIRExpr_HWord(size | (writes ? 1 << 16 : 0)), mkIRExpr_HWord(place));
    IRDirty *call = unsafeIRDirty_0_N(3, "note", VG_(fnptr_to_fnentry)(&note), arguments);
    if (guard)
        call->guard = guard;
    addStmtToIRSB(out, IRStmt_Dirty(call));
}

static void add_statement(IRSB *in, IRSB *out, IRStmt *statement, Addr place)
{
    switch (statement->tag) {
    case Ist_WrTmp: {
        IRExpr *data = statement->Ist.WrTmp.data;
        if (data->tag == Iex_Load)
            add(out, data->Iex.Load.addr, sizeofIRType(data->Iex.Load.ty), False, place, NULL);
        break;
    }
    case Ist_Store: {
        IRType type = typeOfIRExpr(in->tyenv, statement->Ist.Store.data);
        add(out, statement->Ist.Store.addr, sizeofIRType(type), True, place, NULL);
        break;
    }
    case Ist_StoreG: {
        IRStoreG *store = statement->Ist.StoreG.details;
        IRType type = typeOfIRExpr(in->tyenv, store->data);
        add(out, store->addr, sizeofIRType(type), True, place, store->guard);
        break;
    }
    case Ist_LoadG: {
        IRLoadG *load = statement->Ist.LoadG.details;
        IRType type = Ity_INVALID, wide = Ity_INVALID;
        typeOfIRLoadGOp(load->cvt, &wide, &type);
        add(out, load->addr, sizeofIRType(type), False, place, load->guard);
        break;
    }
    case Ist_Dirty: {
        IRDirty *call = statement->Ist.Dirty.details;
        if (call->mFx == Ifx_Read || call->mFx == Ifx_Modify)
            add(out, call->mAddr, call->mSize, False, place, NULL);
        if (call->mFx == Ifx_Write || call->mFx == Ifx_Modify)
            add(out, call->mAddr, call->mSize, True, place, NULL);
        break;
    }
    case Ist_CAS: {
        /* Also one that fails takes the line. */
        IRCAS *cas = statement->Ist.CAS.details;
        Int size = sizeofIRType(typeOfIRExpr(in->tyenv, cas->dataLo)) * (cas->dataHi ? 2 : 1);
        add(out, cas->addr, size, True, place, NULL);
        break;
    }
    default:
        break;
    }
}

static IRSB *instrument(VgCallbackClosure *closure, IRSB *in, const VexGuestLayout *layout,
                        const VexGuestExtents *extents, const VexArchInfo *arch, IRType guest, IRType host)
{
    IRSB *out = deepCopyIRSBExceptStmts(in);
    Addr place = 0;
    for (Int i = 0; i < in->stmts_used; i++) {
        IRStmt *statement = in->stmts[i];
        if (!statement || statement->tag == Ist_NoOp)
            continue;
        if (statement->tag == Ist_IMark)
            place = statement->Ist.IMark.addr;
        add_statement(in, out, statement, place);
        addStmtToIRSB(out, statement);
    }
    return out;
}

static Bool option(const HChar *argument)
{
    return VG_STR_CLO(argument, "--folder", folder);
}

static void usage(void)
{
    VG_(printf)("    --folder=PATH             where the files are that it is ruled by\n");
}

static void no_debug_usage(void) {}

static void begin(void)
{
    mask = (1UL << 17) - 1;
    table = VG_(calloc)("lines", mask + 1, sizeof(Use));
}

static void end(Int code) {}

static void before_options(void)
{
    VG_(details_name)("lines");
    VG_(details_version)(NULL);
    VG_(details_description)("cache lines by thread");
    VG_(details_copyright_author)("");
    VG_(details_bug_reports_to)("");
    VG_(details_avg_translation_sizeB)(400);
    VG_(basic_tool_funcs)(begin, instrument, end);
    VG_(needs_command_line_options)(option, usage, no_debug_usage);
}

VG_DETERMINE_INTERFACE_VERSION(before_options)
