/* kernels/kernel.h -- the contract between the core and the backends: plain C data.
**
** A kernel sees views and attributes, never tensors or Lua. The core has already
** checked shapes, converted dtypes, broadcast (stride 0) and allocated the outputs. */
#ifndef MT_KERNEL_H
#define MT_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MT_MAX_DIMS    12
#define MT_MAX_ATTRS   10
#define MT_MAX_OUTPUTS 3

typedef enum mt_status {
  MT_OK = 0,
  MT_EARG,         /* a bad value of an argument */
  MT_ESHAPE,       /* shapes that do not fit */
  MT_EDTYPE,       /* a dtype that the op does not take */
  MT_EDEVICE,      /* tensors of different devices, or a device that is not there */
  MT_EMEMORY,      /* out of memory, or over the limit */
  MT_EUNSUPPORTED, /* no kernel for this dtype on this device */
  MT_EFAULT,       /* bad data: an index or label out of range, integer x / 0 */
  MT_EGRAD,        /* autograd: released graph, changed in place, no gradient */
  MT_EINTERRUPT,   /* the host wants the op to end (Ctrl-C) */
  MT_ELUA,         /* a Lua error value waits in the state (hooks, mt.Function) */
  MT_EINTERNAL     /* a broken promise of our own */
} mt_status;

/* Order matters: the printing names and sizes in core/dtype.c follow it. */
typedef enum mt_dtype {
  MT_F32,
  MT_F64,
  MT_F16,
  MT_BF16,
  MT_I64,
  MT_I32,
  MT_I16,
  MT_I8,
  MT_U8,
  MT_BOOL, /* one byte, 0 or 1 */
  MT_NDTYPES
} mt_dtype;

#define MT_BIT(dtype) (1u << (dtype))
#define MT_HALF_MASK  (MT_BIT(MT_F16) | MT_BIT(MT_BF16))
#define MT_FLOAT32_64 (MT_BIT(MT_F32) | MT_BIT(MT_F64))
#define MT_FLOAT_MASK (MT_FLOAT32_64 | MT_HALF_MASK)
#define MT_INT_MASK \
  (MT_BIT(MT_I64) | MT_BIT(MT_I32) | MT_BIT(MT_I16) | MT_BIT(MT_I8) | MT_BIT(MT_U8))
#define MT_ALL_MASK    (MT_FLOAT_MASK | MT_INT_MASK | MT_BIT(MT_BOOL))
#define MT_IS_FLOAT(d) ((MT_FLOAT_MASK >> (d)) & 1u)
#define MT_IS_INT(d)   ((MT_INT_MASK >> (d)) & 1u)

typedef struct mt_view {
  char *data; /* the first element: offset applied */
  mt_dtype dtype;
  int ndim;
  int host; /* 0-dim and readable by the host, also when the call runs on a GPU */
  int64_t shape[MT_MAX_DIMS];
  int64_t stride[MT_MAX_DIMS]; /* elements; 0: broadcast */
} mt_view;

/* One attribute's value. Which fields hold it depends on its type in the signature:
** int, dim, index, bool, dtype, choice: i[0]; ints, dims, shape, pair: i[0 .. n-1];
** float: f; number: f, and i[0] too where is_int. n = -1: not given. */
typedef struct mt_attr {
  int n;
  int is_int;
  double f;
  int64_t i[MT_MAX_DIMS];
} mt_attr;

/* The first piece of bad data that a kernel met. On the CPU dispatch reads it after
** the kernel; on a GPU it lies in mapped host memory and the next synchronising call
** does. The kernel goes on with a harmless value. */
typedef struct mt_fault {
  int32_t set; /* 0, then 1 by the first thread that swaps it */
  int32_t op;
  int64_t position; /* element of the index tensor, from 0 */
  int64_t value;    /* what stood there, or MT_NOT_WHOLE */
  int64_t lo, hi;   /* what is allowed; lo > hi: an integer division by zero. Of a
                    ** singular matrix: 1, how many there are; value: the column */
} mt_fault;
#define MT_NOT_WHOLE INT64_MIN /* a float that is no whole number, as a position */

/* How the host ends a long op. Kernels of the CPU ask between pieces of work, in any
** thread: what they have written so far does not matter then. */
typedef struct mt_interrupt {
  int (*pending)(void *arg); /* NULL: never */
  void *arg;
  int stop; /* seen by a kernel; atomic */
} mt_interrupt;

/* What the replays of a captured graph add to what was constant when it was captured.
** Lies on the device. */
typedef struct mt_replay {
  uint64_t positions; /* added to mt_call.position */
  uint64_t count;     /* added to the number of an optimiser's step */
} mt_replay;

typedef struct mt_call {
  int op;                   /* enum mt_op */
  int nin, nout;            /* lengths of in and out */
  const mt_view *const *in; /* signature order; NULL: an optional one left out */
  mt_view *const *out;      /* NULL: this output is not wanted */
  const mt_attr *attr;      /* signature order, dims normalised and from 0 */
  void *stream;             /* NULL on the CPU */
  void *scratch;            /* 64-byte aligned, as many bytes as the entry asked for */
  size_t scratch_bytes;
  uint64_t seed, position; /* Philox key and position reserved for this call */
  mt_fault *fault;
  int device;              /* index, where the views lie */
  int num_threads;         /* at most so many threads */
  int precision;           /* of products: 0 float32, 1 TF32, 2 bfloat16 */
  int deterministic;       /* pin what is otherwise picked by timing */
  int cudnn;               /* convolutions may use cuDNN where it is found */
  mt_interrupt *interrupt; /* NULL: the call cannot be ended */
  const mt_replay *replay; /* NULL: the call is not captured */
} mt_call;

typedef mt_status (*mt_kernel)(const mt_call *call);

typedef struct mt_entry {
  mt_kernel run;
  size_t (*scratch)(const mt_call *call); /* bytes wanted; NULL: none */
  uint32_t dtypes;     /* MT_BIT mask of in[0] (out[0] if no input) that run takes */
  uint32_t contiguous; /* bit i: in[i] must be contiguous; dispatch copies it if not */
} mt_entry;

/* In mt_entry.contiguous: where an input is channels-last, so are the outputs. */
#define MT_KEEPS_CHANNELS_LAST (1u << 31)

/* Calls over many tensors at once: a whole parameter list is one call. n = number of
** parameters; all of one float dtype, out[i], in[i] of one shape, written in place. */
typedef enum mt_many {
  MT_MANY_SGD,  /* in = grads (n), out = {params (n), momenta (n) or none}; attr f: lr,
                ** momentum, dampening, weight_decay, nesterov (0 or 1), first (1:
                *momenta
                ** are not set yet and become the gradient) */
  MT_MANY_ADAM, /* in = grads (n), out = {params, averages, averages of squares} (3 n);
                ** attr f: step from 1, lr, beta1, beta2, epsilon, weight_decay,
                ** decoupled (1: AdamW) */
  MT_MANY_SQUARE_SUM, /* in = tensors (n), out = {0-dim float32 or 64}: sum of squares;
                      ** scratch on a GPU: MT_MANY_SCRATCH */
  MT_MANY_SCALE, /* in = {0-dim factor}, out = tensors (n): each times the factor */
  MT_MANY_COUNT
} mt_many;
#define MT_MANY_SCRATCH 8192 /* bytes: a double for each of 1,024 blocks */

/* What a GPU backend offers beyond kernels. Every function is safe to call from several
** threads; a status other than MT_OK has its text in error_text(). stream NULL is the
** device's default stream. */
typedef enum mt_copy_kind {
  MT_COPY_TO_DEVICE, /* src on the host: may be reused when the call returns */
  MT_COPY_TO_HOST,   /* dst on the host: filled when the call returns, unless pinned */
  MT_COPY_WITHIN     /* both on GPUs, the same one or two */
} mt_copy_kind;

typedef struct mt_device_info {
  char name[64];
  int major, minor; /* compute capability */
  int multiprocessors;
  size_t total_bytes, free_bytes;
  int driver, runtime; /* versions as CUDA writes them: 13000 */
} mt_device_info;

typedef struct mt_device_api {
  const char *(*error_text)(void); /* of this thread's last failure */
  /* Reason why no device can be used (no driver, no GPU, ...); NULL: all is well. */
  const char *(*unavailable)(void);
  int (*device_count)(void);
  mt_status (*open)(int device); /* make it this thread's; its context, at first */
  mt_status (*describe)(int device, mt_device_info *info /* [out] */);
  /* MT_OK, or what destroyed the context: after that nothing works on the device. */
  mt_status (*health)(int device);
  void *(*host_alloc)(
      size_t bytes); /* pinned, mapped at the same address on GPUs; or NULL */
  void (*host_free)(void *p);
  int (*host_is_pinned)(const void *p);
  /* Ordered on stream. Host memory may be pageable: it goes through a pinned ring. */
  mt_status (*copy)(int device, void *stream, mt_copy_kind kind, void *dst,
                    const void *src, size_t bytes, int non_blocking);
  mt_status (*stream_create)(int device, void **stream /* [out] */);
  mt_status (*stream_destroy)(int device, void *stream);
  mt_status (*stream_synchronize)(int device, void *stream);
  mt_status (*device_synchronize)(int device);
  mt_status (*event_create)(int device, int timing, void **event /* [out] */);
  void (*event_destroy)(int device, void *event);
  mt_status (*event_record)(int device, void *event, void *stream);
  mt_status (*event_wait)(int device, void *stream, void *event);
  int (*event_done)(int device, void *event); /* 1: reached, 0: not yet */
  mt_status (*event_synchronize)(int device, void *event);
  mt_status (*event_elapsed)(int device, void *from, void *to, double *ms /* [out] */);
  /* cuDNN's version as it writes it (91900); 0 and the reason: it cannot be used. */
  int (*cudnn_version)(const char **reason /* [out] */);
} mt_device_api;

/* One backend. forward[op] is NULL where there is no kernel. gradient[op] is the fused
** gradient of an elementwise row: in = {g, y, x} (unary), {g, y, a, b} (binary),
** {g, y, a, b, c} (ternary), NULL for those that the formulas of the wanted outputs do
** not name; out[i] = gradient of input i, NULL where not wanted; all of one dtype
** and of the output's shape (inputs broadcast by stride 0). */
typedef struct mt_backend {
  const char *name;     /* "cpu", "cuda" */
  const char *contract; /* checksum of the headers here and ops.def */
  const mt_entry *const *forward;
  const mt_entry *const *gradient;
  /* copy with conversion: in = {src}, out = {dst}; any strides, any two dtypes */
  mt_kernel copy;
  mt_kernel many[MT_MANY_COUNT];
  /* memory of one device; the core caches on top. NULL on exhaustion. */
  void *(*raw_alloc)(int device, size_t bytes);
  void (*raw_free)(int device, void *p, size_t bytes);
  const mt_device_api *device; /* NULL: host memory, and calls return when done */
  /* A table of functions beyond ops, by its name ("toolchain": kernels/toolchain.h,
  ** ...). NULL: this backend has none of that name. */
  const void *(*table)(const char *name);
} mt_backend;

const mt_backend *mt_cpu_backend(void);

/* Shall the call end early? Costs nanoseconds: to be asked each millisecond or so. */
static inline int mt_stopped(const mt_call *call) {
#ifndef __CUDACC__
  mt_interrupt *i = call->interrupt;
  if (!i || !i->pending) return 0;
  if (__atomic_load_n(&i->stop, __ATOMIC_RELAXED)) return 1;
  if (!i->pending(i->arg)) return 0;
  __atomic_store_n(&i->stop, 1, __ATOMIC_RELAXED);
  return 1;
#else
  return (void)call, 0;
#endif
}

/* Record the first fault of a call; later ones are dropped. */
static inline void mt_fault_set(mt_fault *f, int op, int64_t position, int64_t value,
                                int64_t lo, int64_t hi) {
#ifndef __CUDACC__
  int32_t expected = 0;
  if (__atomic_compare_exchange_n(&f->set, &expected, 1, 0, __ATOMIC_RELAXED,
                                  __ATOMIC_RELAXED)) {
    f->op = op, f->position = position, f->value = value, f->lo = lo, f->hi = hi;
  }
#else
  (void)f, (void)op, (void)position, (void)value, (void)lo, (void)hi;
#endif
}

#ifdef __cplusplus
}
#endif
#endif
