/*
 * Counts a VM's objects by type, and finds its biggest tables and what holds them. Reads only; runs on the VM's thread
 * while none of its scripts does.
 */
#define LUA_CORE
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "lj_obj.h"

#include "lj_cdata.h"
#include "lj_ctype.h"
#include "lj_debug.h"
#include "lj_jit.h"
#include "lj_str.h"
#include "lj_tab.h"

#define TYPES 10
#define TABLES 10
#define STEPS 4
#define NAME 160

/* weir_lua::census::Census */
struct census {
  struct { uint64_t count, bytes; } types[TYPES];
  struct { uint64_t bytes, array, hash; char held[NAME]; } tables[TABLES];
};

/* A big table, and what the search for its holders has come to. */
struct big {
  GCtab *table;
  uint64_t bytes;
  GCobj *at;
  char held[NAME];
  int done;
};

static uint64_t table_bytes(GCtab *t)
{
  uint64_t bytes = sizeof(GCtab) + (uint64_t)t->asize * sizeof(TValue);
  return t->hmask > 0 ? bytes + ((uint64_t)t->hmask + 1) * sizeof(Node) : bytes;
}

static uint64_t bytes_of(lua_State *L, GCobj *o)
{
  switch (~(uint32_t)o->gch.gct) {
  case LJ_TSTR: return lj_str_size(gco2str(o)->len);
  case LJ_TUPVAL: return sizeof(GCupval);
  case LJ_TTHREAD: return sizeof(lua_State) + (uint64_t)gco2th(o)->stacksize * sizeof(TValue);
  case LJ_TPROTO: return gco2pt(o)->sizept;
  case LJ_TFUNC: {
    GCfunc *f = gco2func(o);
    return isluafunc(f) ? sizeLfunc((MSize)f->l.nupvalues) : sizeCfunc((MSize)f->c.nupvalues);
  }
  case LJ_TTRACE: {
    GCtrace *T = gco2trace(o);
    return ((sizeof(GCtrace) + 7) & ~7) + (uint64_t)(T->nins - T->nk) * sizeof(IRIns) +
           T->nsnap * sizeof(SnapShot) + T->nsnapmap * sizeof(SnapEntry);
  }
  case LJ_TCDATA: {
    GCcdata *cd = gco2cd(o);
    CTState *cts = ctype_ctsG(G(L));
    if (cdataisv(cd)) return sizecdatav(cd);
    if (!cts || cd->ctypeid >= cts->top) return sizeof(GCcdata);
    CType *ct = ctype_raw(cts, cd->ctypeid);
    return sizeof(GCcdata) + (ctype_hassize(ct->info) ? ct->size : CTSIZE_PTR);
  }
  case LJ_TTAB: return table_bytes(gco2tab(o));
  case LJ_TUDATA: return sizeudata(gco2ud(o));
  default: return 0;
  }
}

/* weir_lua::census::TYPES */
static int type_of(GCobj *o)
{
  switch (~(uint32_t)o->gch.gct) {
  case LJ_TSTR: return 0;
  case LJ_TTAB: return 1;
  case LJ_TFUNC: return 2;
  case LJ_TPROTO: return 3;
  case LJ_TUPVAL: return 4;
  case LJ_TTHREAD: return 5;
  case LJ_TUDATA: return 6;
  case LJ_TCDATA: return 7;
  case LJ_TTRACE: return 8;
  default: return 9;
  }
}

static void keep(struct big *bigs, GCtab *t, uint64_t bytes)
{
  int at = TABLES - 1;
  if (bytes <= bigs[at].bytes) return;
  for (; at > 0 && bigs[at - 1].bytes < bytes; at--) bigs[at] = bigs[at - 1];
  memset(&bigs[at], 0, sizeof(bigs[at]));
  bigs[at].table = t;
  bigs[at].at = obj2gco(t);
  bigs[at].bytes = bytes;
}

/* Puts what one holder calls it before what is known of its name. */
static void before(struct big *big, const char *part, GCobj *holder)
{
  char whole[NAME];
  snprintf(whole, sizeof(whole), "%s%s", part, big->held);
  memcpy(big->held, whole, sizeof(whole));
  big->at = holder;
  if (!holder) big->done = 1;
}

static void key_of(char *out, size_t most, cTValue *key)
{
  if (tvisstr(key))
    snprintf(out, most, ".%.40s", strdata(strV(key)));
  else if (tvisnumber(key))
    snprintf(out, most, "[%.14g]", numberVnum(key));
  else
    snprintf(out, most, "[...]");
}

/* Who of the bigs is held by this table. The mark keeps one holder a step. */
static void held_by_table(struct big *bigs, uint8_t *moved, GCtab *t)
{
  char part[64];
  for (uint32_t i = 0; i < t->asize; i++) {
    TValue *v = arrayslot(t, i);
    if (!tvisgcv(v)) continue;
    for (int b = 0; b < TABLES; b++)
      if (bigs[b].table && !bigs[b].done && !moved[b] && gcV(v) == bigs[b].at && gcV(v) != obj2gco(t)) {
        snprintf(part, sizeof(part), "[%u]", i);
        before(&bigs[b], part, obj2gco(t));
        moved[b] = 1;
      }
  }
  Node *node = noderef(t->node);
  for (uint32_t i = 0; i <= t->hmask; i++) {
    Node *n = &node[i];
    if (tvisnil(&n->val) || !tvisgcv(&n->val)) continue;
    for (int b = 0; b < TABLES; b++)
      if (bigs[b].table && !bigs[b].done && !moved[b] && gcV(&n->val) == bigs[b].at && bigs[b].at != obj2gco(t)) {
        key_of(part, sizeof(part), &n->key);
        before(&bigs[b], part, obj2gco(t));
        moved[b] = 1;
      }
  }
}

/* Scripts' local tables are held by the functions that use them: those know where they are. */
static void held_by_function(struct big *bigs, uint8_t *moved, GCfunc *f)
{
  char part[NAME];
  if (!isluafunc(f)) return;
  for (uint32_t i = 0; i < f->l.nupvalues; i++) {
    GCupval *uv = gco2uv(gcref(f->l.uvptr[i]));
    TValue *v = uvval(uv);
    if (!tvisgcv(v)) continue;
    for (int b = 0; b < TABLES; b++)
      if (bigs[b].table && !bigs[b].done && !moved[b] && gcV(v) == bigs[b].at) {
        GCproto *pt = funcproto(f);
        /* Of long names the end. */
        const char *file = proto_chunknamestr(pt) + 1;
        size_t length = strlen(file);
        snprintf(part, sizeof(part), "local %.40s of %s:%u ", lj_debug_uvname(pt, i),
                 length > 80 ? file + length - 80 : file, (unsigned)pt->firstline);
        before(&bigs[b], part, NULL);
        moved[b] = 1;
      }
  }
}

static void roots(lua_State *L, struct big *bigs)
{
  for (int b = 0; b < TABLES; b++) {
    if (!bigs[b].table || bigs[b].done) continue;
    if (bigs[b].at == obj2gco(tabref(mainthread(G(L))->env)))
      before(&bigs[b], "_G", NULL);
    else if (bigs[b].at == obj2gco(tabV(registry(L))))
      before(&bigs[b], "registry", NULL);
  }
}

static void holders(lua_State *L, struct big *bigs)
{
  for (int step = 0; step < STEPS; step++) {
    uint8_t moved[TABLES] = { 0 };
    roots(L, bigs);
    for (GCobj *o = gcref(G(L)->gc.root); o; o = gcref(o->gch.nextgc))
      if (o->gch.gct == (uint8_t)~LJ_TFUNC) held_by_function(bigs, moved, gco2func(o));
    for (GCobj *o = gcref(G(L)->gc.root); o; o = gcref(o->gch.nextgc))
      if (o->gch.gct == (uint8_t)~LJ_TTAB) held_by_table(bigs, moved, gco2tab(o));
  }
  roots(L, bigs);
}

void weir_census(lua_State *L, struct census *out)
{
  struct big bigs[TABLES];
  global_State *g = G(L);
  memset(out, 0, sizeof(*out));
  memset(bigs, 0, sizeof(bigs));
  /* Userdata are after the main thread, at the end of the same list; strings in a table of their own. */
  for (GCobj *o = gcref(g->gc.root); o; o = gcref(o->gch.nextgc)) {
    int type = type_of(o);
    uint64_t bytes = bytes_of(L, o);
    out->types[type].count++;
    out->types[type].bytes += bytes;
    if (type == 1) keep(bigs, gco2tab(o), bytes);
  }
  for (MSize i = 0; i <= g->str.mask; i++)
    for (GCobj *o = (GCobj *)(gcrefu(g->str.tab[i]) & ~(uintptr_t)1); o; o = gcref(o->gch.nextgc)) {
      out->types[0].count++;
      out->types[0].bytes += bytes_of(L, o);
    }
  holders(L, bigs);
  for (int b = 0; b < TABLES; b++) {
    if (!bigs[b].table) continue;
    out->tables[b].bytes = bigs[b].bytes;
    out->tables[b].array = bigs[b].table->asize;
    out->tables[b].hash = bigs[b].table->hmask > 0 ? (uint64_t)bigs[b].table->hmask + 1 : 0;
    memcpy(out->tables[b].held, bigs[b].held, NAME);
  }
}
