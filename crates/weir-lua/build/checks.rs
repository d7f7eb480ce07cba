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

/// A function of `table` that looks at one, in lib_table.c.
macro_rules! table_function {
    ($name:literal, $result:literal) => {
        concat!(
            "LJLIB_NOREG LJLIB_CF(table_",
            $name,
            ")\tLJLIB_REC(.)\n{\n  GCtab *t = lj_lib_checktab(L, 1);\n  L->top++;\n  ",
            $result,
            ";\n  return 1;\n}\n\n"
        )
    };
}

/// What `require "table.NAME"` runs.
macro_rules! open_function {
    ($name:literal) => {
        concat!(
            "static int luaopen_table_",
            $name,
            "(lua_State *L)\n{\n  return lj_lib_postreg(L, lj_cf_table_",
            $name,
            ", FF_table_",
            $name,
            ", \"",
            $name,
            "\");\n}\n\n"
        )
    };
}

/// Files, and for each a text that occurs in it once and the text that replaces it.
pub(crate) type Checks = &'static [(&'static str, &'static [(&'static str, &'static str)])];

pub(crate) const CHECKS: Checks = &[
    (
        "lj_api.c",
        &[
            // LuaJIT has no limit for calls from C to Lua to C, whose frames may have 8 KB each.
            ("/* -- Common helper functions", "#include \"weir_api.h\"\n\n/* -- Common helper functions"),
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
             \x20 _(ANY,\tweir_func_open,\t2,   S, INT, CCI_L) \\\n\
             \x20 _(ANY,\tweir_tab_clone,\t2,   A, TAB, CCI_L|CCI_T) \\\n\
             \x20 _(ANY,\tweir_tab_nkeys,\t1,   L, INT, 0) \\\n\
             \x20 _(ANY,\tweir_tab_isarray,\t1,   L, INT, 0) \\\n\
             \x20 _(ANY,\tweir_tab_isempty,\t1,   L, INT, 0) \\\n",
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
    (
        "lj_tab.h",
        &[
            (
                "LJ_FUNC void LJ_FASTCALL lj_tab_free(",
                "LJ_FUNC GCtab *weir_tab_clone(lua_State *L, GCtab *from);\n\
                 LJ_FUNC int32_t weir_tab_nkeys(GCtab *t);\n\
                 LJ_FUNC int32_t weir_tab_isarray(GCtab *t);\n\
                 LJ_FUNC int32_t weir_tab_isempty(GCtab *t);\n\
                 LJ_FUNC void LJ_FASTCALL lj_tab_free(",
            ),
            // The lowest bits of a hash are those of an object's address and others far above them. Blocks of one size are
            // beside one another (weir_slabs.h): 100 tables as keys of one had 2 places of 128, and 50 were compared. Bit 7
            // is the lowest first, with which lists of blocks of 16 to 1,024 bytes have 1.4 in a place where 1.5 are expected;
            // as it was, 12.5.
            ("#define HASH_ROT3\t13\n", "#define HASH_ROT3\t13\n#define WEIR_HASH_OBJECT\t(32-7)\n"),
            (
                "  hashlohi((t), (uint32_t)gcrefu(r), (uint32_t)(gcrefu(r) >> 32))",
                "  hashlohi((t), lj_rol((uint32_t)gcrefu(r), WEIR_HASH_OBJECT), (uint32_t)(gcrefu(r) >> 32))",
            ),
        ],
    ),
    // The same in machine code.
    (
        "lj_asm_x86.h",
        &[(
            "\temit_rr(as, XO_MOV, tmp, key);\n#if LJ_GC64\n\temit_gri(",
            "#if LJ_GC64\n\temit_shifti(as, XOg_ROL, tmp, WEIR_HASH_OBJECT);\n#endif\n\
             \temit_rr(as, XO_MOV, tmp, key);\n#if LJ_GC64\n\temit_gri(",
        )],
    ),
    (
        "lj_asm_arm64.h",
        &[(
            "\temit_dnm(as, A64I_EORw, tmp, key, dest);\n\temit_dnm(as, A64I_EORx | A64F_SH(A64SH_LSR, 32), dest, type, key);",
            "\temit_dnm(as, A64I_EORw | A64F_SH(A64SH_ROR, 32-WEIR_HASH_OBJECT), tmp, dest, key);\n\
             \temit_dnm(as, A64I_EORx | A64F_SH(A64SH_LSR, 32), dest, type, key);",
        )],
    ),
    // The functions of tables that OpenResty's LuaJIT has.
    (
        "lj_ffrecord.c",
        &[(
            "/* -- I/O library fast functions",
            "#include \"weir_table_calls.h\"\n\n/* -- I/O library fast functions",
        )],
    ),
    (
        "lj_opt_mem.c",
        &[
            (
                "/* ASTORE/HSTORE elimination. */",
                "/* Whether this reads all of a table. */\n\
                 static int weir_reads_table(IRIns *ir)\n{\n\
                 \x20 return (ir->o == IR_CALLL || ir->o == IR_CALLA) &&\n\
                 \t ir->op2 >= IRCALL_weir_tab_clone && ir->op2 <= IRCALL_weir_tab_isempty;\n}\n\n\
                 /* ASTORE/HSTORE elimination. */",
            ),
            (
                "\t  if (irt_isguard(ir->t) || ir->o == IR_ALEN)\n",
                "\t  if (irt_isguard(ir->t) || ir->o == IR_ALEN || weir_reads_table(ir))\n",
            ),
        ],
    ),
    (
        "lj_opt_sink.c",
        &[(
            "    case IR_CALLS:\n      irt_setmark(",
            "    case IR_CALLS:\n\
             \x20   case IR_CALLL: case IR_CALLA:  /* What these have made may be needed by a snapshot alone. */\n\
             \x20     irt_setmark(",
        )],
    ),
    ("lj_ir.c", &[("#include \"lj_tab.h\"\n", "#include \"lj_tab.h\"\n#include \"lj_func.h\"\n")]),
    // As many upvalues as OpenResty's LuaJIT has; what numbers them has a byte.
    (
        "lj_parse.c",
        &[(
            "/* Index into variable stack. See VarIndex in lj_lex.h. */\n",
            "#undef LJ_MAX_UPVAL\n#define LJ_MAX_UPVAL\t120\n\n",
        )],
    ),
    (
        "lib_jit.c",
        &[
            (
                "    setintV(L->top+1, lj_bc_mode[op]);\n    L->top += 2;\n    return 2;\n",
                "    setintV(L->top+1, lj_bc_mode[op]);\n\
             \x20   if (line) setintV(L->top+2, lj_debug_line(pt, pc));\n\
             \x20   L->top += 2 + line;\n    return 2 + line;\n",
            ),
            (
                "/* local ins, m = jit.util.funcbc(func, pc) */\nLJLIB_CF(jit_util_funcbc)\n{\n",
                "/* local ins, m, line = jit.util.funcbc(func, pc, 1): as OpenResty's `jit.bc` asks for lines. */\n\
             LJLIB_CF(jit_util_funcbc)\n{\n  int line = lj_lib_optint(L, 3, 0) != 0;\n",
            ),
        ],
    ),
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
            (
                "    lo = u32ptr(ir_kgc(ir));\n#if LJ_GC64\n",
                "    lo = u32ptr(ir_kgc(ir));\n#if LJ_GC64\n    lo = lj_rol(lo, WEIR_HASH_OBJECT);\n",
            ),
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
            // As `table.new` and `table.clear`: made when they are first required.
            (
                "static int luaopen_table_new(lua_State *L)\n",
                concat!(
                    "\
LJLIB_NOREG LJLIB_CF(table_clone)\tLJLIB_REC(.)
{
  GCtab *from = lj_lib_checktab(L, 1);
  settabV(L, L->top, weir_tab_clone(L, from));
  L->top++;
  lj_gc_check(L);
  return 1;
}

",
                    table_function!("nkeys", "setintV(L->top-1, weir_tab_nkeys(t))"),
                    table_function!("isarray", "setboolV(L->top-1, weir_tab_isarray(t))"),
                    table_function!("isempty", "setboolV(L->top-1, weir_tab_isempty(t))"),
                    open_function!("clone"),
                    open_function!("nkeys"),
                    open_function!("isarray"),
                    open_function!("isempty"),
                    "static int luaopen_table_new(lua_State *L)\n"
                ),
            ),
            (
                "  lj_lib_prereg(L, LUA_TABLIBNAME \".clear\", luaopen_table_clear, tabV(L->top-1));\n",
                "  lj_lib_prereg(L, LUA_TABLIBNAME \".clear\", luaopen_table_clear, tabV(L->top-1));\n\
                 \x20 lj_lib_prereg(L, LUA_TABLIBNAME \".clone\", luaopen_table_clone, tabV(L->top-1));\n\
                 \x20 lj_lib_prereg(L, LUA_TABLIBNAME \".nkeys\", luaopen_table_nkeys, tabV(L->top-1));\n\
                 \x20 lj_lib_prereg(L, LUA_TABLIBNAME \".isarray\", luaopen_table_isarray, tabV(L->top-1));\n\
                 \x20 lj_lib_prereg(L, LUA_TABLIBNAME \".isempty\", luaopen_table_isempty, tabV(L->top-1));\n",
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
