/* Lines of compiled code: included by LuaJIT's lj_record.c, lj_opt_loop.c, lj_asm.c and lj_trace.c (build.rs), and by
** inspect/walk.c. LuaJIT itself knows of a trace's machine code only where its snapshots are; between two of them functions are
** called and return that have been inlined, and C functions are called by ffi.
**
** While a trace is recorded it is noted from which IR instruction on another line is at work, and what called its function in
** the trace; loops that are unrolled copy the notes; the assembler turns instructions into offsets. What results is kept behind
** the maps of the trace's snapshots, and so is freed with the trace. In words:
**
**   for each place (numbered from 1): its function's prototype (2 words), the place that called it or 0 (12 bits), line (20 bits)
**   for each note, in order of offsets: offset in machine code (16 bits), place (16 bits)
**   numbers of notes (16 bits) and of places (16 bits)
*/
#ifndef WEIR_LINES
#define WEIR_LINES

#define WEIR_LINES_NOTES 2048
#define WEIR_LINES_PLACES 1024
#define WEIR_LINES_DEPTH 64

/* Not of any line: what comes after the last instruction. */
#define WEIR_LINES_NONE 0
/* The trace has more places than are noted. */
#define WEIR_LINES_UNKNOWN 0xfff

/* The trace's table, or NULL; sets the number of its places and notes. */
static LJ_AINLINE uint32_t *weir_lines_table(GCtrace *T, MSize *places, MSize *notes)
{
  SnapShot *last;
  MSize from;
  uint32_t size;
  if (T->nsnap == 0) return NULL;
  last = &T->snap[T->nsnap-1];
  from = last->mapofs + last->nent + 1 + LJ_FR2;
  if (T->nsnapmap <= from) return NULL;
  size = T->snapmap[T->nsnapmap-1];
  *places = size & 0xffff;
  *notes = size >> 16;
  return T->nsnapmap == from + 3 * *places + *notes + 1 ? &T->snapmap[from] : NULL;
}

#endif

#if defined(WEIR_LINES_RECORD) || defined(WEIR_LINES_LOOP) || defined(WEIR_LINES_ASM) || defined(WEIR_LINES_TRACE)

/* What this thread's compiler notes of the trace that it records. */
struct weir_lines {
  jit_State *J;		/* Whose trace it is; one at a time. */
  GCproto *pt;		/* The last place's. */
  BCLine line;
  BCReg baseslot;
  MSize notes, places;
  MSize depth;		/* Of `chain`. */
  MSize next;		/* The assembler comes to it next, from the end. */
  struct { IRRef1 ref; uint16_t place; } note[WEIR_LINES_NOTES];
  struct { GCproto *pt; uint32_t word; } place[WEIR_LINES_PLACES+1];
  /* The last place and what called it, outermost first; deeper ones are as they were there. */
  struct { GCproto *pt; BCLine line; uint32_t place; } chain[WEIR_LINES_DEPTH];
};

#endif

#ifdef WEIR_LINES_TRACE

__thread struct weir_lines *weir_lines;

/* A VM has ended; what is left of its thread's begin anew. */
static void weir_lines_free(void)
{
  free(weir_lines);
  weir_lines = NULL;
}

#endif

#if defined(WEIR_LINES_RECORD) || defined(WEIR_LINES_LOOP) || defined(WEIR_LINES_ASM)

extern __thread struct weir_lines *weir_lines;

static LJ_AINLINE struct weir_lines *weir_lines_of(jit_State *J)
{
  struct weir_lines *w = weir_lines;
  return w && w->J == J ? w : NULL;
}

/* The instructions from `ref` on are of `place`. Those from there on that were noted before emitted nothing, or were undone. */
static void weir_lines_note(struct weir_lines *w, IRRef ref, uint32_t place)
{
  MSize n = w->notes;
  while (n > 0 && w->note[n-1].ref >= ref) n--;
  if (n == WEIR_LINES_NOTES) {
    w->note[n-1].place = WEIR_LINES_UNKNOWN;
  } else if (n == 0 || w->note[n-1].place != place) {
    w->note[n].ref = (IRRef1)ref;
    w->note[n++].place = (uint16_t)place;
  }
  w->notes = n;
}

#endif

#ifdef WEIR_LINES_RECORD

/* A trace begins. */
static void weir_lines_begin(jit_State *J)
{
  struct weir_lines *w = weir_lines;
  if (!w && !(w = weir_lines = (struct weir_lines *)malloc(sizeof(*w)))) return;
  w->J = J;
  w->pt = NULL;
  w->notes = w->places = w->depth = 0;
}

/* The number of a line that was called by `below`; WEIR_LINES_UNKNOWN if there are too many. */
static uint32_t weir_lines_place(struct weir_lines *w, GCproto *pt, BCLine line, uint32_t below)
{
  if (w->places == WEIR_LINES_PLACES) return WEIR_LINES_UNKNOWN;
  w->places++;
  w->place[w->places].pt = pt;
  w->place[w->places].word = below << 20 | ((uint32_t)line & 0xfffff);
  return w->places;
}

/* The line at which the recorder is, with those that called it within the trace. */
static uint32_t weir_lines_here(jit_State *J, struct weir_lines *w)
{
  struct { GCproto *pt; BCLine line; } found[WEIR_LINES_DEPTH];
  cTValue *frame = J->L->base-1, *bottom = J->L->base - J->baseslot + LJ_FR2;
  const BCIns *pc = J->pc + 1;
  MSize n = 0, i;
  uint32_t below = 0;
  for (;;) {
    if (!frame_isvarg(frame) && isluafunc(frame_func(frame))) {
      GCproto *pt = funcproto(frame_func(frame));
      if (n == WEIR_LINES_DEPTH) return WEIR_LINES_UNKNOWN;
      found[n].pt = pt;
      found[n++].line = lj_debug_line(pt, proto_bcpos(pt, pc) - 1);
    }
    if (frame_isvarg(frame)) {  /* The function is below, at the same instruction. */
      frame = frame_prevd(frame);
    } else if (frame <= bottom) {
      break;
    } else if (frame_islua(frame)) {
      pc = frame_pc(frame);
      frame = frame_prevl(frame);
    } else if (frame_ispcall(frame)) {  /* Below is a C function. */
      frame = frame_prevd(frame);
    } else if (frame_iscont(frame) && !frame_iscont_fficb(frame)) {
      pc = frame_contpc(frame);
      frame = frame_prevd(frame);
    } else {
      return WEIR_LINES_UNKNOWN;
    }
  }
  for (i = 0; i < n; i++) {
    GCproto *pt = found[n-1-i].pt;
    BCLine line = found[n-1-i].line;
    if (i >= w->depth || w->chain[i].pt != pt || w->chain[i].line != line) {
      w->chain[i].pt = pt;
      w->chain[i].line = line;
      w->chain[i].place = weir_lines_place(w, pt, line, below);
      w->depth = i+1;
    }
    below = w->chain[i].place;
    if (below == WEIR_LINES_UNKNOWN) break;
  }
  return below;
}

/* An instruction of a function in Lua is going to be recorded. C functions are of the line that calls them. */
static LJ_AINLINE void weir_lines_ins(jit_State *J)
{
  struct weir_lines *w = weir_lines_of(J);
  GCproto *pt = J->pt;
  if (w && pt) {
    BCLine line = lj_debug_line(pt, proto_bcpos(pt, J->pc));
    if (pt != w->pt || line != w->line || J->baseslot != w->baseslot) {
      w->pt = pt;
      w->line = line;
      w->baseslot = J->baseslot;
      weir_lines_note(w, J->cur.nins, weir_lines_here(J, w));
    }
  }
}

#endif

#ifdef WEIR_LINES_LOOP

/* The instruction `ins` is going to be copied, as part of a loop. What it becomes is of the same line. `next` is 0 at first. */
static LJ_AINLINE void weir_lines_copy(jit_State *J, IRRef ins, MSize *next)
{
  struct weir_lines *w = weir_lines_of(J);
  if (w && *next < w->notes && w->note[*next].ref <= ins) {
    while (*next+1 < w->notes && w->note[*next+1].ref <= ins) ++*next;
    weir_lines_note(w, J->cur.nins, w->note[(*next)++].place);
  }
}

/* A loop was not unrolled after all. */
static void weir_lines_undo(jit_State *J, IRRef ins)
{
  struct weir_lines *w = weir_lines_of(J);
  if (!w) return;
  while (w->notes > 0 && w->note[w->notes-1].ref >= ins) w->notes--;
  w->pt = NULL;
}

#endif

#ifdef WEIR_LINES_ASM

/* Room behind the snapshots' maps, with the places. What an attempt with another area of machine code has put there is
** replaced. */
static void weir_lines_append(jit_State *J)
{
  struct weir_lines *w = weir_lines_of(J);
  GCtrace *T = &J->cur;
  SnapShot *last;
  uint32_t *word;
  MSize from, i;
  if (!w || !LJ_FR2 || T->nsnap == 0) return;
  last = &T->snap[T->nsnap-1];
  from = last->mapofs + last->nent + 1 + LJ_FR2;
  lj_assertJ(from <= T->nsnapmap, "bad snapshot map size");
  T->nsnapmap = from;
  weir_lines_note(w, T->nins, WEIR_LINES_NONE);
  lj_snap_grow_map(J, from + 3*w->places + w->notes + 1);
  word = &T->snapmap[from];
  for (i = 1; i <= w->places; i++) {
    uint64_t pt = (uint64_t)(uintptr_t)w->place[i].pt;
    *word++ = (uint32_t)pt;
    *word++ = (uint32_t)(pt >> 32);
    *word++ = w->place[i].word;
  }
  word += w->notes;
  *word = w->notes << 16 | w->places;
  T->nsnapmap = from + 3*w->places + w->notes + 1;
}

/* The first instruction of the note that the assembler, which begins at the trace's end, comes to next. */
static LJ_AINLINE IRRef weir_lines_due(struct weir_lines *w)
{
  return w->next > 0 ? w->note[w->next-1].ref : 0;
}

/* The trace is going to be assembled. */
static IRRef weir_lines_rewind(ASMState *as)
{
  struct weir_lines *w = weir_lines_of(as->J);
  if (!w) return 0;
  w->next = w->notes;
  return weir_lines_due(w);
}

/* The instructions after `ref` are assembled. Returns the instruction before which that has to be said again. */
static IRRef weir_lines_asm(ASMState *as, IRRef ref)
{
  struct weir_lines *w = weir_lines_of(as->J);
  if (!w) return 0;
  while (weir_lines_due(w) > ref) {
    uintptr_t ofs = (uintptr_t)(as->mctoporig - as->mcp);
    uint32_t *word = &as->T->snapmap[as->T->nsnapmap-1] - (w->notes - --w->next);
    /* From its end, which is what is known; see weir_lines_end. */
    *word = ofs < 0x10000 ? (uint32_t)ofs << 16 | w->note[w->next].place : 0xffffu << 16 | WEIR_LINES_UNKNOWN;
  }
  return weir_lines_due(w);
}

/* The trace is assembled. */
static void weir_lines_end(ASMState *as)
{
  struct weir_lines *w = weir_lines_of(as->J);
  uint32_t size = (uint32_t)(as->mctoporig - as->mcp);
  MSize places, notes, i;
  uint32_t *word = w ? weir_lines_table(as->T, &places, &notes) : NULL;
  if (!word) return;
  for (i = 0; i < notes; i++) {
    uint32_t note = word[3*places+i], ofs = size - (note >> 16);
    word[3*places+i] = ofs < 0x10000 ? ofs << 16 | (note & 0xffff) : 0xffffu << 16 | WEIR_LINES_UNKNOWN;
  }
}

#endif
