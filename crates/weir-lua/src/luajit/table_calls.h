/* How `table.clone`, `nkeys`, `isarray` and `isempty` are compiled: included by LuaJIT's lj_ffrecord.c (build.rs). `tables.h` has what
** is called.
**
** Each is called where it stands: none of the calls is taken for an earlier one of the same table, and a loop makes them in each
** round (`CALLL` and `CALLA` are not folded). They come after all stores before them, of which none may be left out
** (`lj_opt_dse_ahstore` knows them). A table that was made in the trace and is given to one of them is made in truth, even where only
** an exit needs what the call returns (`lj_opt_sink.c` marks the arguments of all calls). What is no table is left to the interpreter, which raises the error.
*/

static void LJ_FASTCALL recff_table_clone(jit_State *J, RecordFFData *rd)
{
  TRef tab = J->base[0];
  if (tref_istab(tab))
    J->base[0] = lj_ir_call(J, IRCALL_weir_tab_clone, tab);
  UNUSED(rd);
}

static void LJ_FASTCALL recff_table_nkeys(jit_State *J, RecordFFData *rd)
{
  TRef tab = J->base[0];
  if (tref_istab(tab))
    J->base[0] = lj_ir_call(J, IRCALL_weir_tab_nkeys, tab);
  UNUSED(rd);
}

/* A trace is of one of the two results. */
static void weir_rec_whether(jit_State *J, IRCallID id, int is)
{
  TRef whether = lj_ir_call(J, id, J->base[0]);
  emitir(is ? IRTGI(IR_NE) : IRTGI(IR_EQ), whether, lj_ir_kint(J, 0));
  J->base[0] = is ? TREF_TRUE : TREF_FALSE;
}

static void LJ_FASTCALL recff_table_isarray(jit_State *J, RecordFFData *rd)
{
  if (tref_istab(J->base[0]))
    weir_rec_whether(J, IRCALL_weir_tab_isarray, weir_tab_isarray(tabV(&rd->argv[0])));
}

static void LJ_FASTCALL recff_table_isempty(jit_State *J, RecordFFData *rd)
{
  if (tref_istab(J->base[0]))
    weir_rec_whether(J, IRCALL_weir_tab_isempty, weir_tab_isempty(tabV(&rd->argv[0])));
}
