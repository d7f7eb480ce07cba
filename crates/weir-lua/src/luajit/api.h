/* What Weir asks of VMs beside LuaJIT's C API, and what the running thread's script may not exceed: included by LuaJIT's lj_api.c
** (build.rs). `src/vm/limit` sets the limits, the checks look at them. */

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

static void weir_fit(lua_State *L, GCtab *t, int deep)
{
  uint32_t i, count = 0;
  for (i = 0; t->hmask && i <= t->hmask; i++) {
    cTValue *o = &noderef(t->node)[i].val;
    if (tvisnil(o)) continue;
    count++;
    if (deep > 0 && tvistab(o)) weir_fit(L, tabV(o), deep-1);
  }
  lj_tab_resize(L, t, t->asize, hsize2hbits(count));
}

/* Gives the table on top, and those that are its fields and theirs, no more places than they have fields: who walks a
** table or copies it looks at all places. */
void weir_lua_fit(lua_State *L)
{
  weir_fit(L, tabV(L->top-1), 2);
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
    lj_err_callermsg(L, "C stack overflow");
}
#define lj_vm_call(L, base, n)	(weir_room(L), lj_vm_call((L), (base), (n)))
