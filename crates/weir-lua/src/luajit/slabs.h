/* Small blocks of LuaJIT's heap, by size: included by LuaJIT's lj_alloc.c (build.rs), which has all blocks that are larger.
**
** LuaJIT says of each block how large it is, so none needs a header. A slab of 32 KB has blocks of one size and a list of
** those that are free; its beginning is found by its blocks' addresses. To take a block or to give it back costs about ten
** instructions, where the allocator of before looked for neighbours to join: seventy. Slabs are parts of regions, which go back to the
** system when nothing is in use there.
*/
#ifndef WEIR_SLABS_CODE

/* Of a slab, its header included. */
#define SLAB_BYTES	((size_t)32768)
#define REGION_SLABS	8
/* Blocks up to here are small. */
#define SMALL_MOST	1024
/* Sizes: up to 256 bytes each multiple of 16, up to 1024 each of 64; 0 is not used. */
#define SLAB_KINDS	29
/* So many bytes are made blocks at a time: not a whole slab, whose pages may not be needed. */
#define SLAB_CARVED	1024

struct weir_slab {
  void *free;			/* Each free block begins with the place of the next. */
  uint32_t used;
  uint32_t whole;		/* All blocks were in use: it is in no list. */
  struct weir_slab *next, *before;	/* Others with blocks of the size. */
  char *bump, *end;		/* No block was made here yet. */
  uint32_t size, kind;
  struct weir_slab *region;	/* The first slab of its region, which alone has what follows. */
  struct weir_slab *unused;	/* Slabs that were given back. */
  struct weir_slab *next_roomy, *before_roomy;	/* Regions with slabs that are not in use. */
  struct weir_slab *next_region, *before_region;
  uint32_t fresh, busy;		/* Slabs that ever were in use, and that are. */
};

struct weir_slabs {
  struct weir_slab *list[SLAB_KINDS];	/* With free blocks, and at last `weir_none`. */
  struct weir_slab *roomy, *regions;
  uint32_t idle;		/* Regions of which no slab is in use. */
};

static void weir_slabs_begin(struct weir_slabs *h);
static void weir_slabs_end(struct weir_slabs *h);

#else

/* Blocks begin here: after the header, at a multiple of 16. */
#define SLAB_HEADER	((sizeof(struct weir_slab) + 63) & ~(size_t)63)
#define REGION_BYTES	(SLAB_BYTES * REGION_SLABS)

/* In place of no slab: nothing is free. It is never written. */
static const struct weir_slab weir_none;
#define WEIR_NONE	((struct weir_slab *)&weir_none)

static void *weir_large(void *msp, void *ptr, size_t osize, size_t nsize);

static LJ_AINLINE uint32_t weir_kind(size_t size)
{
  return (uint32_t)(size <= 256 ? (size + 15) >> 4 : 16 + ((size - 193) >> 6));
}

static LJ_AINLINE uint32_t weir_kind_size(uint32_t kind)
{
  return kind <= 16 ? kind << 4 : 256 + ((kind - 16) << 6);
}

static void weir_slabs_begin(struct weir_slabs *h)
{
  int i;
  for (i = 0; i < SLAB_KINDS; i++) h->list[i] = WEIR_NONE;
}

static void weir_slabs_end(struct weir_slabs *h)
{
  struct weir_slab *r = h->regions;
  while (r) {
    struct weir_slab *next = r->next_region;
    CALL_MUNMAP(r, REGION_BYTES);
    r = next;
  }
  h->regions = NULL;
}

static void weir_roomy(struct weir_slabs *h, struct weir_slab *r)
{
  r->before_roomy = NULL;
  r->next_roomy = h->roomy;
  if (h->roomy) h->roomy->before_roomy = r;
  h->roomy = r;
}

static void weir_not_roomy(struct weir_slabs *h, struct weir_slab *r)
{
  if (r->before_roomy) r->before_roomy->next_roomy = r->next_roomy;
  else h->roomy = r->next_roomy;
  if (r->next_roomy) r->next_roomy->before_roomy = r->before_roomy;
}

/* A region begins at a multiple of a slab's size; what is mapped beside it goes back. */
static struct weir_slab *weir_region(mstate m)
{
  struct weir_slabs *h = &m->slabs;
  char *p = (char *)CALL_MMAP(m->prng, REGION_BYTES + SLAB_BYTES);
  char *at;
  struct weir_slab *r;
  if (p == CMFAIL) return NULL;
  at = (char *)(((uintptr_t)p + SLAB_BYTES - 1) & ~(uintptr_t)(SLAB_BYTES - 1));
  if (at > p) CALL_MUNMAP(p, (size_t)(at - p));
  if (at < p + SLAB_BYTES) CALL_MUNMAP(at + REGION_BYTES, (size_t)(p + SLAB_BYTES - at));
  r = (struct weir_slab *)at;
  r->next_region = h->regions;
  if (h->regions) h->regions->before_region = r;
  h->regions = r;
  weir_roomy(h, r);
  h->idle++;
  return r;
}

static struct weir_slab *weir_take_slab(mstate m)
{
  struct weir_slabs *h = &m->slabs;
  struct weir_slab *s, *r = h->roomy ? h->roomy : weir_region(m);
  if (!r) return NULL;
  if (r->busy++ == 0) h->idle--;
  if (r->unused) {
    s = r->unused;
    r->unused = s->next;
  } else {
    s = (struct weir_slab *)((char *)r + SLAB_BYTES * r->fresh++);
    s->region = r;
  }
  if (!r->unused && r->fresh == REGION_SLABS) weir_not_roomy(h, r);
  return s;
}

static void weir_give_slab(mstate m, struct weir_slab *s)
{
  struct weir_slabs *h = &m->slabs;
  struct weir_slab *r = s->region;
  if (!r->unused && r->fresh == REGION_SLABS) weir_roomy(h, r);
  s->next = r->unused;
  r->unused = s;
  if (--r->busy > 0) return;
  /* One is kept, so that heaps that breathe do not ask the system each time. */
  if (h->idle == 0) {
    h->idle++;
    return;
  }
  weir_not_roomy(h, r);
  if (r->before_region) r->before_region->next_region = r->next_region;
  else h->regions = r->next_region;
  if (r->next_region) r->next_region->before_region = r->before_region;
  CALL_MUNMAP(r, REGION_BYTES);
}

static void weir_list(struct weir_slabs *h, struct weir_slab *s)
{
  struct weir_slab *first = h->list[s->kind];
  s->before = NULL;
  s->next = first;
  if (first != WEIR_NONE) first->before = s;
  h->list[s->kind] = s;
}

/* The slab's next blocks become free ones, in the order of their addresses. */
static void weir_carve(struct weir_slab *s)
{
  size_t left = (size_t)(s->end - s->bump) / s->size;
  size_t count = SLAB_CARVED / s->size;
  char *p = s->bump;
  if (count > left) count = left;
  s->free = p;
  for (; count > 1; count--, p += s->size) *(void **)p = p + s->size;
  *(void **)p = NULL;
  s->bump = p + s->size;
}

/* No block is free in the first slab of the list. */
static LJ_NOINLINE void *weir_more(mstate m, uint32_t kind)
{
  struct weir_slabs *h = &m->slabs;
  void *p;
  struct weir_slab *s;
  while ((s = h->list[kind]) != WEIR_NONE && !s->free) {
    if (s->bump + s->size <= s->end) {
      weir_carve(s);
      break;
    }
    s->whole = 1;
    h->list[kind] = s->next;
    if (s->next != WEIR_NONE) s->next->before = NULL;
  }
  if (s == WEIR_NONE) {
    s = weir_take_slab(m);
    if (!s) return NULL;
    s->used = s->whole = 0;
    s->kind = kind;
    s->size = weir_kind_size(kind);
    s->bump = (char *)s + SLAB_HEADER;
    s->end = (char *)s + SLAB_BYTES;
    weir_list(h, s);
    weir_carve(s);
  }
  p = s->free;
  s->free = *(void **)p;
  s->used++;
  return p;
}

/* The slab has its first free block again, or its last used one was given back. */
static LJ_NOINLINE void weir_less(mstate m, struct weir_slab *s)
{
  struct weir_slabs *h = &m->slabs;
  if (s->whole) {
    s->whole = 0;
    weir_list(h, s);
  }
  if (s->used > 0) return;
  if (s->before) s->before->next = s->next;
  else h->list[s->kind] = s->next;
  if (s->next != WEIR_NONE) s->next->before = s->before;
  weir_give_slab(m, s);
}

static LJ_AINLINE void *weir_small(mstate m, size_t size)
{
  uint32_t kind = weir_kind(size);
  struct weir_slab *s = m->slabs.list[kind];
  void *p = s->free;
  if (LJ_UNLIKELY(!p)) return weir_more(m, kind);
  s->free = *(void **)p;
  s->used++;
  return p;
}

static LJ_AINLINE void weir_small_free(mstate m, void *ptr)
{
  struct weir_slab *s = (struct weir_slab *)((uintptr_t)ptr & ~(uintptr_t)(SLAB_BYTES - 1));
  *(void **)ptr = s->free;
  s->free = ptr;
  if (LJ_UNLIKELY((--s->used == 0) | s->whole)) weir_less(m, s);
}

/* From one size to another, of which one at least is small. */
static LJ_NOINLINE void *weir_resize(mstate m, void *ptr, size_t osize, size_t nsize)
{
  void *p;
  if (osize <= SMALL_MOST && nsize <= SMALL_MOST && weir_kind(osize) == weir_kind(nsize)) return ptr;
  p = nsize <= SMALL_MOST ? weir_small(m, nsize) : weir_large(m, NULL, 0, nsize);
  /* Without memory a small block stays the larger one it is: its slab knows its size. */
  if (!p) return nsize < osize && osize <= SMALL_MOST ? ptr : NULL;
  memcpy(p, ptr, osize < nsize ? osize : nsize);
  if (osize <= SMALL_MOST) weir_small_free(m, ptr);
  else weir_large(m, ptr, osize, 0);
  return p;
}

void *lj_alloc_f(void *msp, void *ptr, size_t osize, size_t nsize)
{
  mstate m = (mstate)msp;
  if (nsize == 0) {
    if (ptr == NULL) return NULL;
    if (osize > SMALL_MOST) return weir_large(msp, ptr, osize, 0);
    weir_small_free(m, ptr);
    return NULL;
  }
  if (ptr == NULL) return nsize <= SMALL_MOST ? weir_small(m, nsize) : weir_large(msp, NULL, 0, nsize);
  if (osize > SMALL_MOST && nsize > SMALL_MOST) return weir_large(msp, ptr, osize, nsize);
  return weir_resize(m, ptr, osize, nsize);
}

/* How many regions there are: for tests. */
uint32_t weir_lua_regions(void *msp)
{
  uint32_t count = 0;
  struct weir_slab *r;
  for (r = ((mstate)msp)->slabs.regions; r; r = r->next_region) count++;
  return count;
}

#endif
