/*
 * Walks Lua's stacks from a signal handler: interpreter, C functions below Lua, and compiled traces, with lines.
 *
 * It reads the VM's own structures, allocates nothing, takes no lock and calls nothing but lj_debug_line (which reads).
 * The VM may be interrupted between any two instructions, so every pointer is compared with the VM's bounds before it
 * is followed, functions are known by their tags, loops have bounds; what is wrong nevertheless faults, and the caller
 * (the sampler's guard) goes on with the frames that were found.
 *
 * x86-64 with GC64. Registers of the interpreter there: BASE in rdx, PC in rbx; the frame of its C code is at rsp
 * between calls.
 */
#define LUA_CORE
#include <stddef.h>
#include <stdint.h>

#include "lj_obj.h"

#include "lj_bc.h"
#include "lj_debug.h"
#include "lj_dispatch.h"
#include "lj_frame.h"
#include "lj_ir.h"
#include "lj_jit.h"
#include "lj_vm.h"
#include "weir_lines.h"

#if !LJ_TARGET_X64 || !LJ_GC64 || !LJ_HASJIT
#error "the walk knows x86-64 with GC64 only"
#endif

/* weir_rt::sampler::Step */
struct step {
  uint64_t ip, sp, fp, base, pc;
  uint64_t stack_end;
  uint32_t leaf; /* ip is where the thread was interrupted, not where a call returns to */
  uint32_t count;
  uint64_t frames[64];
};

/* weir_rt::sampler::Frame */
#define WORD_LUA (1ull << 60)
#define WORD_JIT (2ull << 60)
#define WORD_BUILTIN (3ull << 60)
/* Not put, but folded into s->ip. */
#define WORD_FOLDED (4ull << 60)
/* WORD_JIT, of a function that may be another. */
#define WORD_JIT_GUESS (6ull << 60)

#define MOST_FRAMES 64
#define DEEPEST 200
/* Bytes that compiled code has on the native stack at most, with what side traces have added. */
#define MOST_SPILLED 4096

/* Gives a name its number; set before anything is walked. */
static uint32_t (*number_of)(const char *name, size_t len);

void weir_walk_install(uint32_t (*number)(const char *name, size_t len)) { number_of = number; }

#define FFDEF(name) #name,
static const char *const builtins[] = {"Lua", "C",
#include "lj_ffdef.h"
};
#undef FFDEF

static void put(struct step *s, uint64_t frame) {
  if (s->count < MOST_FRAMES) s->frames[s->count++] = frame;
}

static int is_thread(const global_State *g, const lua_State *L) {
  return L && ((uintptr_t)L & 7) == 0 && L->gct == ~LJ_TTHREAD && G(L) == g;
}

static void put_function(struct step *s, GCfunc *fn, const BCIns *pc, uint64_t kind) {
  if (isluafunc(fn)) {
    GCproto *pt = funcproto(fn);
    GCstr *name = strref(pt->chunkname);
    uintptr_t pos = pc ? (uintptr_t)(pc - proto_bc(pt)) - 1 : 0;
    BCLine line = pos < pt->sizebc ? lj_debug_line(pt, (BCPos)pos) : pt->firstline;
    if (kind == WORD_FOLDED) {
      /* By number and hash: another string may be where one was collected, but hardly has both of them. */
      uint64_t place = ((uint64_t)name->sid << 32 | (uint32_t)line) ^ (uint64_t)name->hash << 20;
      s->ip = ((s->ip << 27 | s->ip >> 37) ^ place) * 0x9e3779b97f4a7c15ull;
      return;
    }
    put(s, kind | (uint64_t)number_of(strdata(name), name->len) << 20 | ((uint32_t)line & 0xfffff));
  } else if (kind != WORD_FOLDED && fn->c.ffid > FF_C && fn->c.ffid < sizeof builtins / sizeof *builtins) {
    const char *name = builtins[fn->c.ffid];
    size_t len = 0;
    while (name[len]) len++;
    put(s, WORD_BUILTIN | number_of(name, len));
  }
  /* Other C functions are found on the native stack. */
}

/* The frame below `frame`, of a function that is at the instruction before `*pc`; NULL if C code has called `frame`. */
static cTValue *below(cTValue *frame, const BCIns **pc) {
  if (frame_islua(frame)) {
    *pc = frame_pc(frame);
    return frame_prevl(frame);
  }
  if (frame_isvarg(frame)) return frame_prevd(frame); /* the function itself is below, at the same pc */
  if (frame_iscont(frame)) {
    if (frame_iscont_fficb(frame)) return NULL;
    *pc = frame_contpc(frame);
    return frame_prevd(frame);
  }
  if (frame_typep(frame) == FRAME_C || frame_typep(frame) == FRAME_CP) return NULL;
  *pc = NULL;
  return frame_prevd(frame);
}

/* The Lua stack from `frame` on, `pc` being after the instruction at which its function is, or NULL. Ends at the
 * frame that C code has called. */
static void walk_stack(struct step *s, lua_State *L, cTValue *frame, const BCIns *pc, uint64_t kind) {
  cTValue *bottom = tvref(L->stack) + LJ_FR2, *top = tvref(L->maxstack) + LJ_STACK_EXTRA;
  for (int n = 0; n < DEEPEST && frame > bottom; n++) {
    if (frame >= top || ((uintptr_t)frame & 7)) return;
    if (frame_gc(frame) != obj2gco(L) && !frame_isvarg(frame)) {
      if (itype(frame - 1) != LJ_TFUNC) return;
      GCfunc *fn = frame_func(frame);
      if (fn->c.gct != ~LJ_TFUNC) return;
      put_function(s, fn, pc, kind);
    }
    if (kind == WORD_JIT || kind == WORD_JIT_GUESS) kind = WORD_LUA;
    frame = below(frame, &pc);
  }
}

/* The Lua stack below the function of `frame`. */
static void walk_callers(struct step *s, lua_State *L, cTValue *frame) {
  cTValue *bottom = tvref(L->stack) + LJ_FR2, *top = tvref(L->maxstack) + LJ_STACK_EXTRA;
  const BCIns *pc = NULL;
  while (frame > bottom && frame < top && frame_isvarg(frame)) frame = below(frame, &pc);
  if (frame <= bottom || frame >= top) return;
  frame = below(frame, &pc);
  walk_stack(s, L, frame, pc, WORD_LUA);
}

static int in_traces(jit_State *J, uintptr_t ip) {
  MCode *area = J->mcarea;
  for (int n = 0; area && n < 1024; n++, area = ((MCLink *)area)->next)
    if (ip - (uintptr_t)area < ((MCLink *)area)->size) return 1;
  return 0;
}

static GCtrace *trace_at(jit_State *J, uintptr_t ip) {
  int32_t state = J2G(J)->vmstate;
  if (state > 0 && (MSize)state < J->sizetrace) {
    GCtrace *T = (GCtrace *)gcref(J->trace[state]);
    if (T && ip - (uintptr_t)T->mcode < T->szmcode) return T;
  }
  /* A trace that another one has branched to. */
  for (MSize n = 1; n < J->sizetrace; n++) {
    GCtrace *T = (GCtrace *)gcref(J->trace[n]);
    if (T && ip - (uintptr_t)T->mcode < T->szmcode) return T;
  }
  return NULL;
}

/* The constant that a snapshot has in `slot`. */
static int snap_constant(GCtrace *T, SnapEntry *map, MSize count, BCReg slot, uint64_t *value, GCfunc **fn) {
  for (MSize n = 0; n < count; n++) {
    if (snap_slot(map[n]) != slot) continue;
    IRIns *ir = &T->ir[snap_ref(map[n])];
    if (ir->o == IR_KNUM || ir->o == IR_KINT64) {
      *value = ir_k64(ir)->u64;
      return 1;
    }
    if (ir->o == IR_KGC && irt_type(ir->t) == IRT_FUNC) {
      *fn = gco2func(ir_kgc(ir));
      return 1;
    }
    return 0;
  }
  return 0;
}

/* The last snapshot before `ip`. */
static SnapNo snapshot_before(GCtrace *T, uintptr_t ip) {
  SnapNo low = 0, high = T->nsnap;
  uintptr_t offset = ip - (uintptr_t)T->mcode;
  while (low < high) {
    SnapNo middle = (low + high) >> 1;
    if (offset < T->snap[middle].mcofs) high = middle;
    else low = middle + 1;
  }
  return high ? high - 1 : 0;
}

/* Frames inlined into a trace, as one of its snapshots has them; then those of the real stack. */
static void walk_snapshot(struct step *s, lua_State *L, GCtrace *T, SnapNo number, uint64_t kind) {
  cTValue *base = tvref(G(L)->jit_base);
  cTValue *bottom = tvref(L->stack), *top = tvref(L->maxstack) + LJ_STACK_EXTRA;
  if (!base || base <= bottom + 1 || base >= top || number >= T->nsnap) return;
  SnapShot *snap = &T->snap[number];
  SnapEntry *map = &T->snapmap[snap->mapofs];
  uint64_t pcbase;
  __builtin_memcpy(&pcbase, &map[snap->nent], sizeof pcbase);
  const BCIns *pc = (const BCIns *)(pcbase >> 8) + 1;
  BCReg link = (BCReg)(pcbase & 0xff) + 1; /* where the innermost frame's link is */
  for (int n = 0; link > 1 && n < 64; n++) {
    uint64_t value = 0;
    GCfunc *fn = NULL, *none = NULL;
    TValue tv;
    if (!snap_constant(T, map, snap->nent, link, &value, &none)) return;
    tv.u64 = value;
    uint64_t ignored;
    snap_constant(T, map, snap->nent, link - 1, &ignored, &fn);
    if (!frame_isvarg(&tv) && fn) put_function(s, fn, pc, kind);
    BCReg down;
    if (frame_islua(&tv)) {
      pc = frame_pc(&tv);
      down = 1 + LJ_FR2 + bc_a(pc[-1]);
    } else {
      if (frame_iscont(&tv)) {
        uint64_t behind = 0;
        snap_constant(T, map, snap->nent, link - 2, &behind, &none);
        pc = (const BCIns *)(uintptr_t)behind;
      } else if (!frame_isvarg(&tv)) {
        pc = NULL;
      }
      down = (BCReg)(frame_sized(&tv) >> 3);
    }
    if (down == 0 || down > link) return;
    link -= down;
  }
  /* A tail call has replaced the trace's own function, which is in the stack yet. */
  GCfunc *own = NULL;
  uint64_t none;
  if (link == 1) snap_constant(T, map, snap->nent, 0, &none, &own);
  if (own && !frame_isvarg(base - 1)) {
    put_function(s, own, pc, kind);
    walk_callers(s, L, base - 1);
  } else {
    walk_stack(s, L, base - 1, pc, kind);
  }
}

/* The lines of a trace's place, innermost first, and those of the real stack below the trace's. 0: that is no place. */
static int walk_place(struct step *s, lua_State *L, const uint32_t *table, MSize places, MSize place) {
  cTValue *bottom = tvref(L->stack) + LJ_FR2, *top = tvref(L->maxstack) + LJ_STACK_EXTRA;
  cTValue *frame = tvref(G(L)->jit_base) - 1;
  if (frame <= bottom || frame >= top || ((uintptr_t)frame & 7) || place == 0 || place > places) return 0;
  while (place > 0 && place <= places) {
    const uint32_t *word = &table[3 * (place - 1)];
    GCproto *pt = (GCproto *)(uintptr_t)((uint64_t)word[1] << 32 | word[0]);
    GCstr *name = strref(pt->chunkname);
    if (pt->gct != ~LJ_TPROTO || name->gct != ~LJ_TSTR) break;
    put(s, WORD_JIT | (uint64_t)number_of(strdata(name), name->len) << 20 | (word[2] & 0xfffff));
    MSize caller = word[2] >> 20;
    if (caller >= place) break;
    place = caller;
  }
  walk_callers(s, L, frame);
  return 1;
}

/* The frames of a trace at `ip` in its code. */
static void walk_trace(struct step *s, lua_State *L, GCtrace *T, uintptr_t ip) {
  SnapNo number = snapshot_before(T, ip);
  uintptr_t offset = ip - (uintptr_t)T->mcode;
  MSize places, notes, low = 0;
  const uint32_t *table = weir_lines_table(T, &places, &notes);
  if (!table) {
    walk_snapshot(s, L, T, number, WORD_JIT_GUESS);
    return;
  }
  const uint32_t *note = &table[3 * places];
  for (MSize high = notes; low < high;) {
    MSize middle = (low + high) >> 1;
    if (offset < note[middle] >> 16) high = middle;
    else low = middle + 1;
  }
  /* What is before and after all lines is of the state that the first and the last snapshot have. */
  MSize place = low ? note[low - 1] & 0xffff : WEIR_LINES_NONE;
  if (place == WEIR_LINES_NONE) walk_snapshot(s, L, T, number, WORD_JIT);
  else if (!walk_place(s, L, table, places, place)) walk_snapshot(s, L, T, number, WORD_JIT_GUESS);
}

/* Is `pc` inside of the function at `base`? */
static const BCIns *pc_of(cTValue *base, const BCIns *pc) {
  if (itype(base - 2) != LJ_TFUNC) return NULL;
  GCfunc *fn = frame_func(base - 1);
  if (!isluafunc(fn)) return NULL;
  GCproto *pt = funcproto(fn);
  return pc > proto_bc(pt) && pc <= proto_bc(pt) + pt->sizebc ? pc : NULL;
}

static int is_base(lua_State *L, cTValue *base) {
  cTValue *bottom = tvref(L->stack) + LJ_FR2, *top = tvref(L->maxstack) + LJ_STACK_EXTRA;
  return base > bottom && base < top && ((uintptr_t)base & 7) == 0 &&
         (itype(base - 2) == LJ_TFUNC || frame_gc(base - 1) == obj2gco(L));
}

/* Goes on where C code has called Lua. */
static int leave(struct step *s, void *cframe) {
  uintptr_t c = (uintptr_t)cframe;
  if (!c || c + CFRAME_SIZE > s->stack_end || c + CFRAME_SIZE <= s->sp || (c & 7)) return 0;
  s->ip = *(uint64_t *)(c + CFRAME_SIZE - 8);
  s->fp = *(uint64_t *)(c + CFRAME_SIZE - 16);
  s->sp = c + CFRAME_SIZE;
  return 1;
}

/* The frames of a trace that has called C code, which runs below the C frame at `c`. Its address of return is where the trace's own
 * part of the native stack ends, whatever is below: what is there must be in a trace that has a part of that size. */
static void walk_call(struct step *s, lua_State *L, uintptr_t c) {
  jit_State *J = L2J(L);
  cTValue *base = tvref(G(L)->jit_base);
  for (uintptr_t at = c - 8; at >= s->sp && at < c && c - at <= MOST_SPILLED; at -= 8) {
    uintptr_t ip = *(uintptr_t *)at - 1;
    GCtrace *T = in_traces(J, ip) ? trace_at(J, ip) : NULL;
    if (T && c - at == CFRAME_SIZE_JIT - CFRAME_SIZE + (uintptr_t)T->spadjust + 8) {
      walk_trace(s, L, T, ip);
      return;
    }
  }
  walk_stack(s, L, base - 1, NULL, WORD_JIT_GUESS);
}

/* The Lua stack as the VM has left it to call C code, when nothing is known of the native stack below. */
static int lost(struct step *s, global_State *g, lua_State *L) {
  void *cframe = cframe_raw(L->cframe);
  uintptr_t c = (uintptr_t)cframe;
  if (!c || c < s->sp || c + CFRAME_SIZE > s->stack_end) return 0;
  jit_State *J = G2J(g);
  if (g->vmstate == ~LJ_VMST_EXIT && tvref(g->jit_base) && J->parent && J->parent < J->sizetrace) {
    /* A trace is left, by which exit the VM has noted. */
    GCtrace *T = (GCtrace *)gcref(J->trace[J->parent]);
    if (T) {
      walk_snapshot(s, L, T, (SnapNo)J->exitno, WORD_JIT);
      return leave(s, cframe);
    }
  }
  cTValue *compiled = tvref(g->jit_base), *base = compiled ? compiled : L->base;
  if (compiled) {
    walk_call(s, L, c);
    return leave(s, cframe);
  }
  const BCIns *pc = is_base(L, base) ? pc_of(base, cframe_pc(cframe)) : NULL;
  walk_stack(s, L, base - 1, pc, WORD_LUA);
  return leave(s, cframe);
}

/* Whether `ip` is in compiled Lua code of this VM. */
int weir_walk_is_trace(lua_State *main, uint64_t ip) { return in_traces(L2J(main), (uintptr_t)ip); }

/* State of the VM: 1 interpreter, 2 C function, 3 garbage collector, 4 exit from a trace, 5 recorder, 6 optimizer,
 * 7 assembler, 8 compiled code. */
int weir_walk_state(lua_State *main) {
  int32_t state = G(main)->vmstate;
  return state >= 0 ? 8 : ~state < LJ_VMST__MAX ? 1 + ~state : 0;
}

/* Puts the Lua frames at s->ip, which is in the VM's code or in a trace, and sets the registers to those of the C code
 * that has called Lua. 0: it is not known where that is. */
int weir_walk_frames(lua_State *main, struct step *s) {
  global_State *g = G(main);
  lua_State *L = gco2th(gcref(g->cur_L));
  uintptr_t ip = (uintptr_t)s->ip - (s->leaf ? 0 : 1);
  if (!is_thread(g, L)) return 0;
  if (in_traces(G2J(g), ip)) {
    GCtrace *T = trace_at(G2J(g), ip);
    cTValue *base = tvref(g->jit_base);
    if (T) walk_trace(s, L, T, ip);
    else if (base) walk_stack(s, L, base - 1, NULL, WORD_JIT); /* an exit's stub */
    return leave(s, cframe_raw(L->cframe));
  }
  if (s->leaf) {
    cTValue *base = (cTValue *)(uintptr_t)s->base;
    const BCIns *pc = (const BCIns *)(uintptr_t)s->pc;
    if (is_base(L, base)) {
      walk_stack(s, L, base - 1, pc_of(base, pc), WORD_LUA);
    } else {
      base = tvref(g->jit_base) ? tvref(g->jit_base) : L->base;
      walk_stack(s, L, base - 1, NULL, WORD_LUA);
    }
    return leave(s, cframe_raw(L->cframe));
  }
  void *cframe = (void *)(uintptr_t)s->sp;
  if (s->sp + CFRAME_SIZE <= s->stack_end && is_thread(g, cframe_L(cframe))) {
    L = cframe_L(cframe);
    const BCIns *pc = cframe_pc(cframe);
    walk_stack(s, L, L->base - 1, is_base(L, L->base) ? pc_of(L->base, pc) : NULL, WORD_LUA);
    return leave(s, cframe);
  }
  /* A call by ffi, which has a frame of its own. */
  return lost(s, g, L);
}

/* Where the C frame of the code that runs now is, if that is not below `sp`; 0 outside of Lua. */
uint64_t weir_walk_boundary(lua_State *main, uint64_t sp) {
  global_State *g = G(main);
  lua_State *L = gco2th(gcref(g->cur_L));
  if (!is_thread(g, L)) return 0;
  uint64_t c = (uint64_t)(uintptr_t)cframe_raw(L->cframe);
  return c >= sp ? c : 0;
}

/* As weir_walk_frames where the native stack could not be followed to the VM. */
int weir_walk_lost(lua_State *main, struct step *s) {
  global_State *g = G(main);
  lua_State *L = gco2th(gcref(g->cur_L));
  return is_thread(g, L) ? lost(s, g, L) : 0;
}

/* Puts the Lua frames of a coroutine that has yielded, or in which a C function runs that called this. */
void weir_walk_coroutine(lua_State *L, struct step *s) {
  if (is_base(L, L->base)) walk_stack(s, L, L->base - 1, NULL, WORD_LUA);
}

/* Whether `frame` may be a frame of C code between `after` and the C code that runs Lua. */
static int is_c_frame(uintptr_t frame, uintptr_t after, uintptr_t end) {
  return frame > after && (frame & 7) == 0 && end > 16 && frame <= end - 16;
}

/* Puts the Lua frames of the code that has called the C function with the frame pointer `frame`, which has called this; not
 * from a signal handler. */
void weir_walk_here(lua_State *any, void *frame, struct step *s) {
  global_State *g = G(any);
  lua_State *L = gco2th(gcref(g->cur_L));
  cTValue *compiled = tvref(g->jit_base);
  if (!is_thread(g, L) || !L->cframe) return;
  uintptr_t at = (uintptr_t)frame, end = (uintptr_t)cframe_raw(L->cframe);
  if (!compiled) {
    const BCIns *pc = is_base(L, L->base) ? pc_of(L->base, cframe_pc((void *)end)) : NULL;
    if (is_base(L, L->base)) walk_stack(s, L, L->base - 1, pc, WORD_LUA);
    return;
  }
  /* Compiled code has no frames, and may have anything in the register: the first address in a trace is the one. */
  for (int n = 0; n < 64 && is_c_frame(at, (uintptr_t)&at - 1, end); n++) {
    uintptr_t ip = ((uintptr_t *)at)[1] - 1, next = ((uintptr_t *)at)[0];
    GCtrace *T = in_traces(G2J(g), ip) ? trace_at(G2J(g), ip) : NULL;
    if (T) {
      walk_trace(s, L, T, ip);
      return;
    }
    if (next <= at) break;
    at = next;
  }
  walk_stack(s, L, compiled - 1, NULL, WORD_JIT_GUESS);
}

/* A number for the lines that weir_walk_coroutine puts: the same lines have the same one. */
uint64_t weir_walk_number(lua_State *L) {
  struct step s;
  s.ip = 1;
  if (is_base(L, L->base)) walk_stack(&s, L, L->base - 1, NULL, WORD_FOLDED);
  return s.ip;
}
