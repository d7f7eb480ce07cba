/* Tables that become larger, or smaller: included by LuaJIT's lj_tab.c (build.rs). While a thread has asked for them
** (`weir trace --deep`), what changes a table's size says so, with the time it took; src/run/table_changes.rs has the other half.
** Else it costs a test where a table is arranged again, which costs hundreds of instructions, and nothing anywhere else.
**
** What is called there allocates nothing of Lua's, runs no script and raises no error. Where there is no memory for the table
** nothing is said.
*/

/* A table's size before and after: elements of its array, with that of number 0, and places for other keys. */
struct weir_table_change {
  uint64_t since, until;	/* Ticks. */
  uint32_t array[2], hash[2];
  void *frame;			/* Of the C function that changed it. */
};

struct weir_tables {
  uint64_t (*clock)(void);
  void (*changed)(lua_State *L, const struct weir_table_change *change);
};

__thread const struct weir_tables *weir_lua_tables;

/* From here on, on this thread; no longer with NULL. */
void weir_lua_watch_tables(const struct weir_tables *tables);
void weir_lua_watch_tables(const struct weir_tables *tables) { weir_lua_tables = tables; }

static void weir_table_size(GCtab *t, struct weir_table_change *change, int at)
{
  change->array[at] = t->asize;
  change->hash[at] = t->hmask ? t->hmask+1 : 0;
}

static LJ_NOINLINE void weir_table_begins(struct weir_table_change *change, GCtab *t)
{
  weir_table_size(t, change, 0);
  change->frame = NULL;
  if (weir_lua_tables) change->since = weir_lua_tables->clock();
}

static LJ_NOINLINE void weir_table_ends(lua_State *L, struct weir_table_change *change, GCtab *t)
{
  const struct weir_tables *w = weir_lua_tables;
  if (!w) return;
  change->until = w->clock();
  weir_table_size(t, change, 1);
  change->frame = __builtin_frame_address(0);
  w->changed(L, change);
}

#define weir_table_changes(L, t, it) \
  do { \
    if (LJ_LIKELY(!weir_lua_tables)) { \
      it; \
    } else { \
      struct weir_table_change change; \
      weir_table_begins(&change, t); \
      it; \
      weir_table_ends(L, &change, t); \
    } \
  } while (0)

/* `table.clone`, as OpenResty's LuaJIT has it: a table with the same places for the same keys, as they are made of templates; without
** the metatable. A loop in Lua would arrange the new one again and again while it grows.
*/
int weir_lua_clone(lua_State *L);
int weir_lua_clone(lua_State *L)
{
  GCtab *t, *copy;
  uint32_t i;
  if (L->base == L->top || !tvistab(L->base)) lj_err_argt(L, 1, LUA_TTABLE);
  lj_gc_check(L);
  t = tabV(L->base);
  copy = lj_tab_dup(L, t);
  settabV(L, L->top, copy);
  L->top++;
  /* In a template a table stands for nil. The copy is white, and nothing was collected since. */
  for (i = 0; t->hmask && i <= t->hmask; i++)
    if (tvistab(&noderef(t->node)[i].val)) noderef(copy->node)[i].val = noderef(t->node)[i].val;
  return 1;
}

/* `table.nkeys` and `table.isarray`: the compiler goes on after a call, and gives up at a short loop in Lua. */
int weir_lua_nkeys(lua_State *L);
int weir_lua_nkeys(lua_State *L)
{
  GCtab *t;
  uint32_t i, count = 0;
  if (L->base == L->top || !tvistab(L->base)) lj_err_argt(L, 1, LUA_TTABLE);
  t = tabV(L->base);
  for (i = 0; i < t->asize; i++)
    if (!tvisnil(arrayslot(t, i))) count++;
  for (i = 0; t->hmask && i <= t->hmask; i++)
    if (!tvisnil(&noderef(t->node)[i].val)) count++;
  lua_pushinteger(L, (lua_Integer)count);
  return 1;
}

int weir_lua_isarray(lua_State *L);
int weir_lua_isarray(lua_State *L)
{
  GCtab *t;
  uint32_t i;
  int is = 1;
  if (L->base == L->top || !tvistab(L->base)) lj_err_argt(L, 1, LUA_TTABLE);
  t = tabV(L->base);
  if (t->asize && !tvisnil(arrayslot(t, 0))) is = 0;
  for (i = 0; is && t->hmask && i <= t->hmask; i++) {
    Node *n = &noderef(t->node)[i];
    if (tvisnil(&n->val)) continue;
    is = tvisint(&n->key) ? intV(&n->key) >= 1
       : tvisnum(&n->key) && numV(&n->key) >= 1 && numV(&n->key) == lj_vm_floor(numV(&n->key));
  }
  lua_pushboolean(L, is);
  return 1;
}
