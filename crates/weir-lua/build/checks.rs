//! What is changed in the copies of LuaJIT's sources.

/// A hook is set, as it is when a script has run too long, and that is why.
macro_rules! check {
    () => {
        "\
extern __thread const char *weir_lua_message;
static LJ_AINLINE void weir_check(lua_State *L)
{
  if (LJ_UNLIKELY(G(L)->hookmask & LUA_MASKCOUNT) && weir_lua_message)
    lj_err_callermsg(L, weir_lua_message);
}
"
    };
}

/// What the thread's VMs are at, and for how long: `src/luajit/times.rs` has the other half. One thing at a time: while a
/// finalizer has something compiled, it is the compiler. What was left by an error (there is no memory) is over when the
/// same begins again.
macro_rules! times {
    () => {
        "\
struct weir_times { uint64_t spent[3], since; uint64_t (*clock)(void); uint32_t doing; };
extern __thread struct weir_times *weir_lua_times;
enum { WEIR_COLLECTOR = 1, WEIR_COMPILER = 2 };

static void weir_turn(struct weir_times *t, uint32_t doing)
{
  uint64_t now = t->clock();
  uint64_t *spent = &t->spent[t->doing];
  __atomic_store_n(spent, *spent + (now - t->since), __ATOMIC_RELAXED);
  t->since = now;
  t->doing = doing;
}

static LJ_AINLINE uint32_t weir_begin(uint32_t doing)
{
  struct weir_times *t = weir_lua_times;
  uint32_t before = 0;
  if (t) {
    if (t->doing == doing) t->doing = 0;
    before = t->doing;
    weir_turn(t, doing);
  }
  return before;
}

static LJ_AINLINE void weir_end(uint32_t before)
{
  if (weir_lua_times) weir_turn(weir_lua_times, before);
}

"
    };
}

/// Files, and for each a text that occurs in it once and the text that replaces it.
pub(crate) type Checks = &'static [(&'static str, &'static [(&'static str, &'static str)])];

pub(crate) const CHECKS: Checks = &[
    (
        "lj_api.c",
        &[
            // LuaJIT has no limit for calls from C to Lua to C, whose frames may have 8 KB each.
            ("/* -- Common helper functions", STATE),
        ],
    ),
    (
        "lj_alloc.c",
        &[
            // Most blocks are small, and a script's request has hundreds: they are taken from lists by size.
            ("struct malloc_state {", "#include \"weir_slabs.h\"\n\nstruct malloc_state {"),
            ("  PRNGState  *prng;\n};", "  PRNGState  *prng;\n  struct weir_slabs slabs;\n};"),
            (
                "    init_bins(m);\n    mn = ",
                "    init_bins(m);\n    weir_slabs_begin(&m->slabs);\n    mn = ",
            ),
            (
                "  msegmentptr sp = &ms->seg;\n  while (sp != 0) {",
                "  msegmentptr sp = &ms->seg;\n  weir_slabs_end(&ms->slabs);\n  while (sp != 0) {",
            ),
            (
                "void *lj_alloc_f(void *msp, void *ptr, size_t osize, size_t nsize)\n{",
                "#define WEIR_SLABS_CODE\n#include \"weir_slabs.h\"\n\n\
                 static void *weir_large(void *msp, void *ptr, size_t osize, size_t nsize)\n{",
            ),
        ],
    ),
    (
        "lj_tab.c",
        &[
            // What `weir trace --deep` shows of them.
            ("/* -- Table resizing --", "#include \"weir_tables.h\"\n\n/* -- Table resizing --"),
            (
                "static void rehashtab(lua_State *L, GCtab *t, cTValue *ek)\n{",
                "static LJ_AINLINE void weir_rehash(lua_State *L, GCtab *t, cTValue *ek)\n{",
            ),
            (
                "void lj_tab_reasize(lua_State *L, GCtab *t, uint32_t nasize)\n{\n\
                 \x20 lj_tab_resize(L, t, nasize+1, t->hmask > 0 ? lj_fls(t->hmask)+1 : 0);",
                "static void rehashtab(lua_State *L, GCtab *t, cTValue *ek)\n{\n\
                 \x20 weir_table_changes(L, t, weir_rehash(L, t, ek));\n}\n\n\
                 void lj_tab_reasize(lua_State *L, GCtab *t, uint32_t nasize)\n{\n\
                 \x20 weir_table_changes(L, t,\n\
                 \x20   lj_tab_resize(L, t, nasize+1, t->hmask > 0 ? lj_fls(t->hmask)+1 : 0));",
            ),
            // A table that grows key by key has two, four and eight fields: it begins with four.
            (
                "  lj_tab_resize(L, t, asize, hsize2hbits(total));",
                "  total = hsize2hbits(total);\n\
                 \x20 lj_tab_resize(L, t, asize, total == 1 ? 2 : total);",
            ),
            // What moves to a larger table is in it already: keys that are strings and whose place is free need no search.
            // Nor a barrier, as the table has no object that it had not before.
            (
                "      if (!tvisnil(&n->val))\n\tcopyTV(L, lj_tab_set(L, t, &n->key), &n->val);",
                "      if (!tvisnil(&n->val)) {\n\
                 \tNode *to = tvisstr(&n->key) && hbits ? hashstr(t, strV(&n->key)) : NULL;\n\
                 \tif (to && tvisnil(&to->val) && tvisnil(&to->key)) {\n\
                 \t  to->key.u64 = n->key.u64;\n\
                 \t  copyTV(L, &to->val, &n->val);\n\
                 \t} else {\n\
                 \t  copyTV(L, lj_tab_set(L, t, &n->key), &n->val);\n\
                 \t}\n\
                 \x20     }",
            ),
        ],
    ),
    // Functions that compiled code makes.
    (
        "lj_ircall.h",
        &[(
            "  _(ANY,\tlj_tab_clear,\t\t1,  FS, NIL, 0) \\\n",
            "  _(ANY,\tlj_tab_clear,\t\t1,  FS, NIL, 0) \\\n\
             \x20 _(ANY,\tweir_func_new,\t\t3,   A, FUNC, CCI_L|CCI_T) \\\n\
             \x20 _(ANY,\tweir_func_open,\t2,   S, INT, CCI_L) \\\n",
        )],
    ),
    (
        "lj_func.h",
        &[(
            "LJ_FUNC void LJ_FASTCALL lj_func_free(",
            "LJ_FUNC GCfunc *weir_func_new(lua_State *L, GCproto *pt, GCfuncL *parent);\n\
             LJ_FUNC int32_t weir_func_open(lua_State *L, int32_t unused);\n\
             LJ_FUNC void LJ_FASTCALL lj_func_free(",
        )],
    ),
    ("lj_ir.c", &[("#include \"lj_tab.h\"\n", "#include \"lj_tab.h\"\n#include \"lj_func.h\"\n")]),
    (
        "lj_func.c",
        &[(
            "void LJ_FASTCALL lj_func_free(global_State *g, GCfunc *fn)\n",
            "#define WEIR_FUNC\n#include \"weir_closures.h\"\n\n\
             void LJ_FASTCALL lj_func_free(global_State *g, GCfunc *fn)\n",
        )],
    ),
    (
        "lj_record.c",
        &[
            // Which line each part of a trace is of: `src/luajit/lines.h`.
            (
                "/* Record the next bytecode instruction (_before_ it's executed). */",
                "#define WEIR_LINES_RECORD\n#include <stdlib.h>\n#include \"weir_lines.h\"\n\n\
                 /* Record the next bytecode instruction (_before_ it's executed). */",
            ),
            (
                "  pc = J->pc;\n  if (J->framedepth == 0 &&",
                "  weir_lines_ins(J);\n  pc = J->pc;\n  if (J->framedepth == 0 &&",
            ),
            (
                "  memset(J->slot, 0, sizeof(J->slot));\n",
                "  weir_lines_begin(J);\n  memset(J->slot, 0, sizeof(J->slot));\n",
            ),
            (
                "/* Record upvalue load/store. */",
                "#include \"weir_closures.h\"\n\n/* Record upvalue load/store. */",
            ),
            (
                "  case BC_UCLO:\n  case BC_FNEW:\n",
                "  case BC_UCLO:\n\
                 \x20   if (weir_rec_close(J)) break;\n\
                 \x20   goto weir_nyi;\n\
                 \x20 case BC_FNEW:\n\
                 \x20   rc = weir_rec_func(J, ra, gco2pt(proto_kgc(J->pt, ~(ptrdiff_t)rc)));\n\
                 \x20   if (rc) break;\n\
                 \x20 weir_nyi:\n",
            ),
        ],
    ),
    (
        "lj_opt_loop.c",
        &[
            (
                "/* -- Loop unrolling using copy-substitution",
                "#define WEIR_LINES_LOOP\n#include \"weir_lines.h\"\n\n/* -- Loop unrolling using copy-substitution",
            ),
            ("  IRRef ins, invar;\n", "  IRRef ins, invar;\n  MSize note = 0;\n"),
            (
                "    if (ins >= osnap->ref)  /*",
                "    weir_lines_copy(J, ins, &note);\n    if (ins >= osnap->ref)  /*",
            ),
            ("  lj_ir_rollback(J, ins);\n", "  lj_ir_rollback(J, ins);\n  weir_lines_undo(J, ins);\n"),
        ],
    ),
    (
        "lj_asm.c",
        &[
            (
                "/* -- Assembler core",
                "#define WEIR_LINES_ASM\n#include \"weir_lines.h\"\n\n/* -- Assembler core",
            ),
            (
                "  as->orignins = lj_ir_nextins(J);\n",
                "  weir_lines_append(J);\n  as->orignins = lj_ir_nextins(J);\n",
            ),
            ("    asm_setup_regsp(as);\n", "    asm_setup_regsp(as);\n    note = weir_lines_rewind(as);\n"),
            ("  ASMState *as = &as_;\n", "  ASMState *as = &as_;\n  IRRef note;\n"),
            (
                "      asm_snap_prev(as);\n      if (!ra_used(ir)",
                "      asm_snap_prev(as);\n\
                 \x20     if (LJ_UNLIKELY(note > as->curins)) note = weir_lines_asm(as, as->curins);\n\
                 \x20     if (!ra_used(ir)",
            ),
            (
                "    /* Emit head of trace. */\n",
                "    weir_lines_asm(as, 0);\n\n    /* Emit head of trace. */\n",
            ),
            ("  asm_snap_fixup_mcofs(as);\n", "  asm_snap_fixup_mcofs(as);\n  weir_lines_end(as);\n"),
        ],
    ),
    (
        "lj_dispatch.c",
        &[
            // A hook that raises an error itself is still at work while a handler of errors runs, which then has no hooks.
            ("static void callhook(", "extern __thread int weir_lua_raising;\n\nstatic void callhook("),
            (
                "    hook_leave(g);\n#endif\n  }\n}",
                "    hook_leave(g);\n#endif\n    if (weir_lua_raising) {\n      weir_lua_raising = 0;\n      lj_err_run(L);\n    }\n  }\n}",
            ),
        ],
    ),
    (
        "lib_string.c",
        &[
            // A match goes back and forth in time that grows exponentially with the pattern.
            (
                "static const char *match(MatchState *ms, const char *s, const char *p);",
                concat!(check!(), "static const char *match(MatchState *ms, const char *s, const char *p);"),
            ),
            (
                "  if (++ms->depth > LJ_MAX_XLEVEL)",
                "  weir_check(ms->L);\n  if (++ms->depth > LJ_MAX_XLEVEL)",
            ),
        ],
    ),
    (
        "lib_table.c",
        &[
            // Without a function of the script's it is C that compares.
            (
                "static int sort_comp(lua_State *L, int a, int b)\n{",
                concat!(check!(), "static int sort_comp(lua_State *L, int a, int b)\n{\n  weir_check(L);"),
            ),
        ],
    ),
    (
        "lj_buf.c",
        &[
            // `rep` and `concat` make up to 2 GB in one call.
            // Compiled code calls them, too, where an error would have no place; that looks for hooks itself, next.
            (
                "/* -- Buffer management",
                concat!(
                    check!(),
                    "#define weir_check_buf(sb) \\\n  ",
                    "if (!tvref(G(sbufL(sb))->jit_base)) weir_check(sbufL(sb))\n\n/* -- Buffer management"
                ),
            ),
            (
                "      do { *w++ = c; } while (--rep > 0);",
                "      do {\n\
                 \tint32_t part = rep < 1<<20 ? rep : 1<<20;\n\
                 \tmemset(w, (int)c, (size_t)part);\n\
                 \tw += part; rep -= part;\n\
                 \tweir_check_buf(sb);\n\
                 \x20     } while (rep > 0);",
            ),
            (
                "\tdo { *w++ = *q++; } while (q < e);",
                "\tdo { *w++ = *q++; } while (q < e);\n\
                 \tif ((rep & 4095) == 0 || len > 4096) weir_check_buf(sb);",
            ),
            (
                "      cTValue *o = lj_tab_getint(t, i);\n      char *w;",
                "      cTValue *o = lj_tab_getint(t, i);\n      char *w;\n      weir_check_buf(sb);",
            ),
        ],
    ),
    (
        "lj_gc.c",
        &[
            // The time the collector takes is shown in traces; what the interpreter and compiled code call is found by
            // name.
            (
                "int LJ_FASTCALL lj_gc_step(lua_State *L)\n{",
                concat!(times!(), "static LJ_AINLINE int weir_gc_step(lua_State *L)\n{"),
            ),
            (
                "/* Ditto, but fix the stack top first. */",
                "int LJ_FASTCALL lj_gc_step(lua_State *L)\n{\n  uint32_t before = weir_begin(WEIR_COLLECTOR);\n  \
                 int done = weir_gc_step(L);\n  weir_end(before);\n  return done;\n}\n\n\
                 /* Ditto, but fix the stack top first. */",
            ),
            ("void lj_gc_fullgc(lua_State *L)\n{", "static LJ_AINLINE void weir_gc_full(lua_State *L)\n{"),
            (
                "/* -- Write barriers",
                "void lj_gc_fullgc(lua_State *L)\n{\n  uint32_t before = weir_begin(WEIR_COLLECTOR);\n  \
                 weir_gc_full(L);\n  weir_end(before);\n}\n\n/* -- Write barriers",
            ),
        ],
    ),
    (
        "lj_trace.c",
        &[
            (
                "void lj_trace_freestate(global_State *g)\n{\n  jit_State *J = G2J(g);\n",
                "#define WEIR_LINES_TRACE\n#include <stdlib.h>\n#include \"weir_lines.h\"\n\n\
                 void lj_trace_freestate(global_State *g)\n{\n  jit_State *J = G2J(g);\n  weir_lines_free();\n",
            ),
            // And the compiler, which is called for each instruction that it records.
            (
                "void lj_trace_ins(jit_State *J, const BCIns *pc)\n{",
                concat!(times!(), "static LJ_AINLINE void weir_trace_ins(jit_State *J, const BCIns *pc)\n{"),
            ),
            (
                "/* A hotcount triggered. Start recording a root trace. */",
                "void lj_trace_ins(jit_State *J, const BCIns *pc)\n{\n  uint32_t before = weir_begin(WEIR_COMPILER);\n  \
                 weir_trace_ins(J, pc);\n  weir_end(before);\n}\n\n\
                 /* A hotcount triggered. Start recording a root trace. */",
            ),
        ],
    ),
    (
        "lj_str.c",
        &[
            // The time of this search is the product of both lengths; the C library's needs their sum.
            ("#define LUA_CORE\n", "#define LUA_CORE\n#define _GNU_SOURCE\n#include <string.h>\n"),
            (
                "      int c = *(const uint8_t *)p++;",
                "      if (plen > 64) return (const char *)memmem(s, slen, p, plen);\n\
                 \x20     int c = *(const uint8_t *)p++;",
            ),
            // Tables are walked in one order by all workers' VMs.
            ("/* Reseed String ID from PRNG", "#include \"weir_strings.h\"\n\n/* Reseed String ID from PRNG"),
            (
                "#ifndef STRID_RESEED_INTERVAL\n  s->sid = g->str.id++;",
                "  if (len <= WEIR_STRING_MAX) s->sid = weir_string_id(str, len);\n  else {\n\
                 #ifndef STRID_RESEED_INTERVAL\n  s->sid = g->str.id++;",
            ),
            ("#endif\n  s->reserved = 0;", "#endif\n  }\n  s->reserved = 0;"),
            (
                "  g->str.seed = lj_prng_u64(&g->prng);",
                "  g->str.seed = lj_prng_u64(&g->prng);\n  weir_strings_begin(lj_prng_u64(&g->prng));",
            ),
        ],
    ),
];

/// What the running thread's script may not exceed: set by `src/vm/limit`, looked at by the checks.
const STATE: &str = "\
__thread const char *weir_lua_message;
__thread int weir_lua_raising;
static __thread char *weir_lua_floor;

struct weir_times;
__thread struct weir_times *weir_lua_times;

/* From here on what this thread's collectors and compilers take is added up there. */
void weir_lua_time(struct weir_times *times) { weir_lua_times = times; }

/* The running script is overdue, in these words; it is not with NULL. */
void weir_lua_overdue(const char *msg) { weir_lua_message = msg; }

/* The hook that calls this has left an error's value on the stack. */
void weir_lua_raise(void) { weir_lua_raising = 1; }

/* The stack's end, as far as calls from C to Lua may use it. */
void weir_lua_stack(char *floor) { weir_lua_floor = floor; }

/* A coroutine has ended for lack of memory. Compiled code may have been in functions whose frames it had not written,
** and the collector reads frames: so all are taken away, and only the error's value is left. */
void weir_lua_unframe(lua_State *L)
{
  TValue *base = tvref(L->stack) + 1 + LJ_FR2;
  TValue *error = L->top - 1;
  if (error > base && error < tvref(L->maxstack)) copyTV(L, base, error);
  else if (error != base) setnilV(base);
  L->base = base;
  L->top = base + 1;
}

/* The state of the random numbers that compilers and tables draw, in words of 32 bits; it is `after` from here on, unless that
** is NULL. */
void weir_lua_random(lua_State *L, uint32_t *before, const uint32_t *after)
{
  PRNGState *rs = &G(L)->prng;
  int i;
  for (i = 0; i < 8; i++) before[i] = (uint32_t)(rs->u[i/2] >> (i & 1 ? 32 : 0));
  if (!after) return;
  for (i = 0; i < 4; i++) rs->u[i] = after[2*i] | (uint64_t)after[2*i+1] << 32;
}

/* The function on top may get no arguments from here on, if it has no `...`. All chunks are made as functions that have;
** those are never compiled as a whole, and have a second frame. */
void weir_lua_fix(lua_State *L)
{
  GCproto *pt;
  BCIns *bc;
  MSize i;
  if (!tvisfunc(L->top-1) || !isluafunc(funcV(L->top-1))) return;
  pt = funcproto(funcV(L->top-1));
  bc = proto_bc(pt);
  if (bc_op(bc[0]) != BC_FUNCV || pt->numparams != 0) return;
  for (i = 1; i < pt->sizebc; i++)
    if (bc_op(bc[i]) == BC_VARG) return;
  setbc_op(&bc[0], BC_FUNCF);
  pt->flags &= ~PROTO_VARARG;
}

/* For how many fields the table on top has room beside its array. */
uint32_t weir_lua_room(lua_State *L)
{
  GCtab *t = tabV(L->top-1);
  return t->hmask ? t->hmask+1 : 0;
}

static LJ_AINLINE GCtab *weir_table(lua_State *L, int at)
{
  return tabV(at > 0 ? L->base + (at-1) : L->top + at);
}

/* How many elements the table has that has an array alone; -1 where it has other keys, or is so large that it has to
** be looked at more closely. */
int weir_lua_array(lua_State *L, int at)
{
  GCtab *t = weir_table(L, at);
  MSize n = t->asize;
  if (t->hmask != 0 || n > 1000000 || (n > 0 && !tvisnil(arrayslot(t, 0)))) return -1;
  while (n > 1 && tvisnil(arrayslot(t, n-1))) n--;
  return n > 0 ? (int)n-1 : 0;
}

/* What stands in element `n` of a table's array: 1 a string, 2 a number, 0 anything else or nothing. */
int weir_lua_element(lua_State *L, int at, uint32_t n, const char **text, size_t *len, double *number)
{
  GCtab *t = weir_table(L, at);
  cTValue *o;
  if (n >= t->asize) return 0;
  o = arrayslot(t, n);
  if (tvisstr(o)) {
    *text = strVdata(o);
    *len = strV(o)->len;
    return 1;
  }
  if (!tvisnumber(o)) return 0;
  *number = numberVnum(o);
  return 2;
}

/* Writes the texts and small whole numbers of a table that has an array alone to `out`, and of tables in it: how many
** bytes, -1 where anything else stands there, -2 where `room` is too small. */
static ptrdiff_t weir_gather(GCtab *t, char *out, size_t room, int deep)
{
  MSize i, n = t->asize;
  char *p = out;
  if (deep > 8 || t->hmask != 0 || n > 1000000 || (n > 0 && !tvisnil(arrayslot(t, 0)))) return -1;
  while (n > 1 && tvisnil(arrayslot(t, n-1))) n--;
  for (i = 1; i < n; i++) {
    cTValue *o = arrayslot(t, i);
    size_t left = room - (size_t)(p - out);
    if (tvisstr(o)) {
      size_t len = strV(o)->len;
      if (len > left) return -2;
      memcpy(p, strVdata(o), len);
      p += len;
    } else if (tvisnumber(o)) {
      double number = numberVnum(o);
      uint32_t rest = number >= 0 && number < 1e9 ? (uint32_t)number : 0, digits = 1, ten;
      /* Not -0 either, which is shown with its sign. */
      if ((double)rest != number || (rest == 0 && 1/number < 0)) return -1;
      for (ten = rest; ten >= 10; ten /= 10) digits++;
      if (digits > left) return -2;
      for (ten = digits; ten > 0; rest /= 10) p[--ten] = (char)('0' + rest % 10);
      p += digits;
    } else if (tvistab(o)) {
      ptrdiff_t more = weir_gather(tabV(o), p, left, deep+1);
      if (more < 0) return more;
      p += more;
    } else {
      return -1;
    }
  }
  return p - out;
}

ptrdiff_t weir_lua_gather(lua_State *L, int at, char *out, size_t room)
{
  return weir_gather(weir_table(L, at), out, room, 0);
}

/* The number in element `n` of a table's array, 0 where nothing is; -1 where something else is, or the array is shorter. */
double weir_lua_numeral(lua_State *L, int at, uint32_t n)
{
  GCtab *t = weir_table(L, at);
  cTValue *o;
  if (n >= t->asize) return -1;
  o = arrayslot(t, n);
  if (tvisnil(o)) return 0;
  return tvisnumber(o) ? numberVnum(o) : -1;
}

/* The userdata of `size` bytes that stands in element `n` of a table's array, if one does. */
void *weir_lua_userdata(lua_State *L, int at, uint32_t n, size_t size)
{
  GCtab *t = weir_table(L, at);
  cTValue *o;
  if (n >= t->asize) return NULL;
  o = arrayslot(t, n);
  return tvisudata(o) && udataV(o)->len == size ? uddata(udataV(o)) : NULL;
}

static LJ_AINLINE void weir_room(lua_State *L)
{
  if (LJ_UNLIKELY((char *)__builtin_frame_address(0) < weir_lua_floor))
    lj_err_callermsg(L, \"C stack overflow\");
}
#define lj_vm_call(L, base, n)\t(weir_room(L), lj_vm_call((L), (base), (n)))

/* -- Common helper functions";
