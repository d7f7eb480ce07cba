/* Tables that become larger, or smaller: included by LuaJIT's lj_tab.c (build.rs). While a thread has asked for them
** (`weir trace --deep`), what changes a table's size says so, with the time it took; src/run/table_changes.rs has the other half.
** Else it costs a test where a table is arranged again, which costs hundreds of instructions, and nothing anywhere else.
**
** What is called there allocates nothing of Lua's, runs no script and raises no error. Where there is no memory for the table
** nothing is said.
*/

#include "lj_vm.h"

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

/* What `table.clone`, `nkeys`, `isarray` and `isempty` of OpenResty's LuaJIT do (lib_table.c has the functions, `table_calls.h` has how
** they are compiled). Compiled code calls these: they read the table, so no store to it that comes before may be left out.
*/

/* A table with the same places for the same keys, without the metatable; it is not looked whether the collector is due. A loop
** in Lua would arrange the new one again and again while it grows. */
GCtab *weir_tab_clone(lua_State *L, GCtab *from)
{
  uint32_t i, hmask = from->hmask;
  GCtab *t = newtab(L, from->asize, hmask > 0 ? lj_fls(hmask)+1 : 0);
  t->nomm = 0;  /* Names of metamethods may be among the keys. */
  /* NOBARRIER: The table is new (marked white). */
  if (from->asize > 0)
    memcpy(tvref(t->array), tvref(from->array), from->asize*sizeof(TValue));
  if (hmask > 0) {
    Node *node = noderef(t->node), *old = noderef(from->node);
    ptrdiff_t d = (char *)node - (char *)old;
    setfreetop(t, node, (Node *)((char *)getfreetop(from, old) + d));
    for (i = 0; i <= hmask; i++) {
      Node *next = nextnode(&old[i]);
      /* Not copyTV, which asserts that a key is alive; one without a value may be dead. */
      node[i].val = old[i].val;
      node[i].key = old[i].key;
      setmref(node[i].next, next == NULL ? next : (Node *)((char *)next + d));
    }
  }
  return t;
}

/* How many keys it has; that of number 0 is one. */
int32_t weir_tab_nkeys(GCtab *t)
{
  uint32_t i;
  int32_t count = 0;
  TValue *array = tvref(t->array);
  for (i = 0; i < t->asize; i++)
    if (!tvisnil(&array[i])) count++;
  if (t->hmask > 0)
    for (i = 0; i <= t->hmask; i++)
      if (!tvisnil(&noderef(t->node)[i].val)) count++;
  return count;
}

/* Whether all its keys are whole numbers, of which some may be absent or below 1. */
int32_t weir_tab_isarray(GCtab *t)
{
  uint32_t i;
  if (t->hmask == 0) return 1;
  for (i = 0; i <= t->hmask; i++) {
    Node *n = &noderef(t->node)[i];
    if (tvisnil(&n->val) || tvisint(&n->key)) continue;
    if (!tvisnum(&n->key) || numV(&n->key) != lj_vm_floor(numV(&n->key))) return 0;
  }
  return 1;
}

/* Whether it has no key. */
int32_t weir_tab_isempty(GCtab *t)
{
  uint32_t i;
  for (i = 0; i < t->asize; i++)
    if (!tvisnil(arrayslot(t, i))) return 0;
  if (t->hmask > 0)
    for (i = 0; i <= t->hmask; i++)
      if (!tvisnil(&noderef(t->node)[i].val)) return 0;
  return 1;
}
