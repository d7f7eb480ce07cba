/* Functions that compiled code makes: included by LuaJIT's lj_func.c and lj_record.c (build.rs). LuaJIT itself compiles no
** function that makes another, nor any that calls such a one.
**
** Of the locals that a function has as upvalues, those that nothing assigns to any more (LuaJIT's parser knows) are copied
** into upvalues of its own, which are closed. Open ones point into the stack, which compiled code does not keep up to date; so a function with
** such upvalues is made by the interpreter, as before.
*/
#ifdef WEIR_FUNC

/* Create a Lua function for compiled code, without a GC check. Upvalues that are locals of the parent are closed and
** empty. */
GCfunc *weir_func_new(lua_State *L, GCproto *pt, GCfuncL *parent)
{
  GCfunc *fn = func_newL(L, pt, tabref(parent->env));
  MSize i, nuv = pt->sizeuv;
  /* NOBARRIER: The GCfunc is new (marked white). */
  for (i = 0; i < nuv; i++) {
    uint32_t v = proto_uv(pt)[i];
    GCupval *uv;
    if ((v & PROTO_UV_LOCAL)) {
      uv = func_emptyuv(L);
      uv->immutable = ((v / PROTO_UV_IMMUTABLE) & 1);
      uv->dhash = (uint32_t)(uintptr_t)mref(parent->pc, char) ^ (v << 24);
    } else {
      uv = &gcref(parent->uvptr[v])->uv;
    }
    setgcref(fn->l.uvptr[i], obj2gco(uv));
  }
  fn->l.nupvalues = (uint8_t)nuv;
  return fn;
}

/* Whether the coroutine has open upvalues. */
int32_t weir_func_open(lua_State *L, int32_t unused)
{
  UNUSED(unused);
  return gcref(L->openupval) != NULL;
}

#else

/* Whether the coroutine had open upvalues when this trace's first function was made. While it is recorded the interpreter makes the
** functions, with open upvalues, which do not exist when the trace runs. */
static __thread int weir_had_open;

/* Whether the trace makes a function. */
static int weir_makes_functions(jit_State *J)
{
  IRRef ref;
  for (ref = J->chain[IR_CALLA]; ref; ref = IR(ref)->prev)
    if (IR(ref)->op2 == IRCALL_weir_func_new) return 1;
  return 0;
}

/* Record the creation of a function. Locals that it has as upvalues and that nothing assigns to any more are copied: no
** upvalue is open then, which would have to be in the stack. 0 where another one is among them. */
static TRef weir_rec_func(jit_State *J, BCReg ra, GCproto *pt)
{
  uint32_t i, n = pt->sizeuv;
  TRef tr;
  for (i = 0; i < n; i++) {
    uint32_t v = proto_uv(pt)[i];
    if ((v & PROTO_UV_LOCAL) && !(v & PROTO_UV_IMMUTABLE)) return 0;
  }
  if (!weir_makes_functions(J)) weir_had_open = gcref(J->L->openupval) != NULL;
  tr = lj_ir_call(J, IRCALL_weir_func_new, lj_ir_kgc(J, obj2gco(pt), IRT_PROTO), getcurrf(J));
  for (i = 0; i < n; i++) {
    uint32_t v = proto_uv(pt)[i];
    if ((v & PROTO_UV_LOCAL)) {
      /* A local function may have itself as upvalue. */
      TRef val = (v & 0xff) == ra ? tr : getslot(J, v & 0xff);
      uint32_t dhash = (uint32_t)(uintptr_t)mref(J->fn->l.pc, char) ^ (v << 24);
      TRef uref = emitir(IRTG(IR_UREFC, IRT_PGC), tr,
			 (i << 8) | (hashrot(dhash, dhash + HASH_BIAS) & 0xff));
      if (!LJ_DUALNUM && tref_isinteger(val)) val = emitir(IRTN(IR_CONV), val, IRCONV_NUM_INT);
      emitir(IRT(IR_USTORE, tref_type(val)), uref, val);
    }
  }
  return tr;
}

/* Record the closing of upvalues: there are none that are open when the trace runs. */
static int weir_rec_close(jit_State *J)
{
  TRef tr;
  if (weir_makes_functions(J) ? weir_had_open : gcref(J->L->openupval) != NULL) return 0;
  tr = lj_ir_call(J, IRCALL_weir_func_open, lj_ir_kint(J, 0));
  emitir(IRTGI(IR_EQ), tr, lj_ir_kint(J, 0));
  return 1;
}

#endif
