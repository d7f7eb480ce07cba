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
