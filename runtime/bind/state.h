/* runtime/bind/state.h -- bind's own part of a Lua state, beside core's context. */
#ifndef MT_BIND_STATE_H
#define MT_BIND_STATE_H

#include "runtime/bind/bind.h"

typedef enum mtl_sci { MTL_SCI_AUTO, MTL_SCI_ALWAYS, MTL_SCI_NEVER } mtl_sci;

/* mt.set_printoptions */
typedef struct mtl_print {
  int precision;     /* digits behind the point */
  int64_t threshold; /* elements that are shown in full */
  int edgeitems;     /* shown at either end of a dim beyond that */
  int linewidth;     /* columns */
  mtl_sci sci;
} mtl_print;

/* The collector is told of tensors in portions of at least this many bytes. */
#define MTL_STEP_BYTES ((size_t)256 * 1024)

/* How often the collector is stepped (collect.c). */
typedef struct mtl_pace {
  size_t bytes;          /* allocated on the host between two steps */
  double end;            /* of the last step, seconds */
  double total;          /* seconds in all steps */
  double spent, between; /* seconds within and outside of steps, of late */
  bool gpu;              /* tensors were made there */
  bool generational;     /* the state was switched to that mode */
  int64_t major_live;    /* live bytes after the last major collection, or fewer: the
                         ** most in the last second or two */
  int64_t lived[2];      /* the most live bytes in this second, in the one before */
  double second;         /* when this second ends */
  double major_next;     /* when there is time for the next one */
} mtl_pace;

/* Bytes of C stack within which no call is deep: Lua's limit is 200 calls, and the
** leanest, of a Lua function by `for`, takes 195 bytes. */
#define MTL_SHALLOW 32768

#define MTL_MAX_PENDING 16

/* The Tensor userdata. The second word tells it from any other, whatever metatable
** somebody has given them through the debug library. */
typedef struct mtl_box {
  mt_tensor *tensor; /* NULL: not filled yet, or freed */
  const void *magic;
} mtl_box;

extern const char mtl_box_magic;

/* The box at arg, which stays there; NULL: it is no tensor. */
static inline mtl_box *mtl_to_box(lua_State *L, int arg) {
  mtl_box *b = lua_touserdata(L, arg);
  if (b == NULL || lua_rawlen(L, arg) != sizeof *b) return NULL; /* light: length 0 */
  return b->magic == &mtl_box_magic ? b : NULL;
}

typedef struct mtl_state {
  mt_context ctx;  /* first: a pointer to it is one to the whole */
  lua_State *main; /* the main thread, which lives as long as the state */
  mtl_pace pace;
  lua_Hook hook;       /* the main thread's when the current call began */
  bool closed;         /* lua_close has finalized everything of ours */
  int nscopes;         /* mt.scope calls that are running */
  int metatable;       /* of tensors: its reference in the registry */
  const char *shallow; /* address of the C stack: the highest that made a tensor */
  mtl_print print;
  /* References on their way into a userdata that is being allocated. What an exhausted
  ** memory leaves here, the next call from outside a finalizer releases. */
  int npending;
  mt_tensor *pending[MTL_MAX_PENDING];
} mtl_state;

static inline mtl_state *mtl_state_of(lua_State *L) {
  return (mtl_state *)mtl_context(L);
}

/* Have enough bytes of tensors been allocated since the last step? */
static inline bool mtl_step_is_due(const mtl_state *s) {
  return s->ctx.gc_debt >= s->pace.bytes || s->ctx.gpu_debt >= MT_GC_CYCLE;
}

/* mtl_new_tensor and mtl_enter where the state is known, or wanted. */
mt_tensor **mtl_new_tensor_of(lua_State *L, mtl_state *s);
mtl_state *mtl_enter_state(lua_State *L);

/* mtl_call_op and its in-place form, where the state is known (call.c). */
int mtl_call_op_of(lua_State *L, mtl_state *s, mt_op op, int first, const char *fname);
int mtl_call_op_inplace_of(lua_State *L, mtl_state *s, mt_op op, int first,
                           const char *fname);

/* Raise if the host has interrupted the script since mtl_enter: for loops of our own that
** may take long. */
void mtl_check_interrupt(lua_State *L);
/* Does nothing: called to see what a call meets, a hook or the end of the stack. */
int mtl_do_nothing(lua_State *L);
/* Lua code has run within a call: a hook that it has set is no interrupt. */
void mtl_expect_hook(lua_State *L);

/* Step Lua's collector by what was allocated, unless it was stopped; drop what is
** pending. */
void mtl_step_collector(lua_State *L, mtl_state *s);
/* Is there room for the call of a finalizer? One that Lua has no memory to call is lost,
** and with it the tensor. Lua keeps the room that this asks for. */
bool mtl_can_finalize(lua_State *L);
/* Is Lua's C stack nearly full? At its very end Lua cannot call finalizers, and drops
** them. here: an address in the caller's frame, too far from s->shallow. */
bool mtl_is_deep(lua_State *L, mtl_state *s, const char *here);
/* The Lua that runs: "Lua 5.4.4" (collect.c). */
const char *mtl_lua_release(void);
/* seconds = mt._collecting() (collect.c) */
int mtl_collecting(lua_State *L);

/* Release the pending references from position keep on. */
void mtl_drop_pending(mtl_state *s, int keep);

/* The userdata on top was just made: raise if the state is closed; if a finalizer runs,
** remember it, since lua_close does not finalize what its finalizers make. */
void mtl_note_new(lua_State *L, const mtl_state *s);

/* Create the context unless the state has one. */
void mtl_open_state(lua_State *L);

/* Note that the userdata on top was made while mt.scope runs (memory.c). */
void mtl_scope_add(lua_State *L);

/* Release what the userdata at arg holds; later uses of it are errors. Idempotent. */
void mtl_free_tensor(lua_State *L, int arg);

/* The environment variable, unless the host was told to ignore them all (-E). */
const char *mtl_getenv(lua_State *L, const char *name);

/* Set the state's default device to what the host or the environment says. */
void mtl_preset_device(lua_State *L);
/* Raise if the environment asks for kernels of an unknown instruction set. */
void mtl_check_isa(lua_State *L);

/* Push a tensor made of the nested table, number or boolean at arg (nested.c).
** Without a dtype in the options, booleans set it to bool. */
void mtl_read_nested(lua_State *L, int arg, const char *fname, mtl_options *o);

/* Push a userdata that holds the values of the tensor at arg, contiguous and on the
** CPU: another handle of it if it is so, else a copy. dtype -1: its own (convert.c).
** Free it when done. */
mt_tensor *mtl_push_on_cpu(lua_State *L, int arg, int dtype, const char *fname);

/* Push the table that mt.memory_stats gives (memory.c). The device must be there. */
void mtl_push_memory_stats(lua_State *L, mt_device device);

/* An uninitialised tensor in pinned host memory (pinned.c). MT_EDEVICE: no GPU. */
mt_status mtl_empty_pinned(mt_context *ctx, mt_dtype dtype, int ndim,
                           const int64_t *shape, mt_tensor **out /* [out] */);
/* A copy to or from this GPU is under way which reads or fills t, if it is pinned. */
void mtl_note_pinned(mt_tensor *t, mt_device gpu);

/* Stream and Event of mt.cuda (stream.c); stack: mt.cuda */
void mtl_open_streams(lua_State *L);
/* mt.cuda.graph (graph.c); stack: module, mt.cuda */
void mtl_open_graph(lua_State *L);
/* What is called deals with the GPU's queue of work: an error that names it, while a
** graph is captured. Else 0; a GPU that a profile holds back goes on. */
int mtl_refuse_capture(lua_State *L, const char *name);
/* cuDNN's version as text, or why it cannot be used (backends.c). */
void mtl_push_cudnn(lua_State *L);
/* The GPU that the number or name at arg means; none: the current one. An error of
** mt.cuda.NAME where there is none (cuda.c). */
mt_device mtl_check_gpu(lua_State *L, int arg, const char *name);
/* Call the function at fn with what stands above it, while gpu is the current one and
** stream its current stream; whatever happens, both are then what they were. The
** results are left from fn on; returns their number (cuda.c). */
int mtl_call_on(lua_State *L, int fn, int gpu, void *stream);

/* Overwrite t with a value (constructors.c). */
mt_status mtl_fill(mt_context *ctx, mt_tensor *t, double value);

/* value = mt._json_decode(text) (json.c) */
int mtl_json_decode(lua_State *L);

/* Offer mytensor.h's functions to C modules (extension.c). stack: module */
void mtl_open_extension(lua_State *L);

/* Add methods to Tensor. */
void mtl_set_methods(lua_State *L, const luaL_Reg *methods);

#endif
