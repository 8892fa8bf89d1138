/* runtime/core/tensor.h -- tensors and their storage: reference counts, views,
 * geometry. */
#ifndef MT_TENSOR_H
#define MT_TENSOR_H

#include <stdbool.h>
#include "runtime/core/dtype.h"

typedef struct mt_context mt_context;
typedef struct mt_autograd mt_autograd; /* runtime/autograd's part of a tensor */

typedef enum mt_device_kind { MT_CPU, MT_CUDA, MT_NKINDS } mt_device_kind;

typedef struct mt_device {
  int8_t kind;  /* mt_device_kind */
  int8_t index; /* from 0, as CUDA counts; 0 on the CPU */
} mt_device;

/* Memory shared by a tensor and its views. version counts writes: autograd compares it.
** References are plain numbers: tensors and storages belong to one Lua state, and only
** one thread at a time may use that. Small elements lie behind the storage itself. */
typedef struct mt_storage {
  int refs;
  uint32_t version;
  mt_device device;
  void *data;
  size_t bytes;
  void *stream; /* GPU: the stream, or graph, that it was allocated for */
  void (*release)(void *user, void *data); /* NULL: the caching allocator's */
  void *user;
} mt_storage;

typedef struct mt_tensor {
  mt_view v; /* v.data = storage->data + offset * size */
  int refs;
  bool wrapped;  /* a Lua number: does not promote within its kind */
  bool gradient; /* of another tensor, whose shape it keeps */
  mt_storage *storage;
  int64_t offset;        /* elements from the start of storage */
  mt_autograd *autograd; /* NULL: takes no part */
} mt_tensor;

/* Reference counting. NULL is allowed. The last release frees the autograd part through
** the hook that runtime/autograd sets, without recursion. */
static inline mt_tensor *mt_retain(mt_tensor *t) {
  if (t) t->refs++;
  return t;
}
void mt_tensor_free(mt_tensor *t); /* of the last reference */
static inline void mt_release(mt_tensor *t) {
  if (t && --t->refs <= 0) mt_tensor_free(t);
}
extern void (*mt_autograd_release)(mt_autograd *part);

/* New contiguous tensor with uninitialised elements.
** MT_ESHAPE: too many dims, a negative size, or a product that overflows. */
mt_status mt_empty(mt_context *ctx, mt_dtype dtype, mt_device device, int ndim,
                   const int64_t *shape, mt_tensor **out /* [out] */);
/* 0-dim CPU tensors made of a number; wrapped. Cheap. */
mt_status mt_scalar_f64(mt_context *ctx, double x, mt_tensor **out /* [out] */);
mt_status mt_scalar_i64(mt_context *ctx, int64_t x, mt_tensor **out /* [out] */);
mt_status mt_scalar_bool(mt_context *ctx, bool x, mt_tensor **out /* [out] */);
/* A tensor over memory of the caller; release(user, data) runs when nothing uses it.
** It runs, too, when this fails. */
mt_status mt_from_blob(mt_context *ctx, void *data, mt_dtype dtype, mt_device device,
                       int ndim, const int64_t *shape,
                       void (*release)(void *user, void *data), void *user,
                       mt_tensor **out /* [out] */);
/* Another tensor over t's storage with this geometry (strides and offset in elements).
** MT_EARG: it would reach outside the storage. The autograd part is not shared. */
mt_status mt_alias(mt_tensor *t, int ndim, const int64_t *shape, const int64_t *stride,
                   int64_t offset, mt_tensor **out /* [out] */);

/* The same with t's own geometry. */
mt_status mt_alias_same(mt_tensor *t, mt_tensor **out /* [out] */);
/* The same bytes as elements of another dtype: the last dim, whose elements are
** neighbours then, gets longer or shorter unless the sizes are alike.
** MT_EDTYPE: one of both is bool. MT_ESHAPE: elements would be cut, or spread. */
mt_status mt_alias_bits(mt_tensor *t, mt_dtype dtype, mt_tensor **out /* [out] */);

/* mt_check_holds of a wrapped number; other tensors are converted as they come. */
mt_status mt_check_number(const mt_tensor *value, mt_dtype d, int arg);

static inline mt_dtype mt_dtype_of(const mt_tensor *t) { return t->v.dtype; }
static inline mt_device mt_device_of(const mt_tensor *t) { return t->storage->device; }
static inline bool mt_same_device(mt_device a, mt_device b) {
  return a.kind == b.kind && a.index == b.index;
}
const char *mt_device_name(mt_device d); /* "cpu", "cuda:0" */
/* "cpu", "cuda", "cuda:1", "auto" (-> current or 0). Only parses. */
mt_status mt_device_parse(const char *name, mt_device *d /* [out] */);

int64_t mt_numel(const mt_view *v);
bool mt_is_contiguous(const mt_view *v);
/* Do the elements of (N, C, H, W) lie as (N, H, W, C), and not contiguous as well? */
bool mt_is_channels_last(const mt_view *v);
bool mt_same_shape(const mt_view *a, const mt_view *b);
/* Row-major strides of a shape. */
void mt_default_strides(int ndim, const int64_t *shape, int64_t *stride /* [out] */);
void mt_channels_last_strides(const int64_t *shape, int64_t *stride /* [out] */);
/* The product of sizes. MT_ESHAPE: a negative size, or more than INT64_MAX bytes. */
mt_status mt_shape_numel(int ndim, const int64_t *shape, size_t element_bytes,
                         int64_t *numel /* [out] */);
/* NumPy's broadcast of a with *shape, in place. MT_ESHAPE names both shapes. */
mt_status mt_broadcast(int *ndim, int64_t *shape, const mt_view *with);
/* v seen in a larger shape (stride 0 where it repeats). The shape must fit. */
void mt_view_expand(const mt_view *v, int ndim, const int64_t *shape,
                    mt_view *expanded /* [out] */);
/* *to = *from, but only the dims that there are. */
void mt_view_copy(mt_view *to, const mt_view *from);
/* The shape as "[2, 3]" in a rotating thread-local buffer (8 are alive at once). */
const char *mt_shape_text(int ndim, const int64_t *shape);
const char *mt_view_text(const mt_view *v);
/* Does a view reach one element by two indices (an expanded tensor)? */
bool mt_overlaps_itself(const mt_view *v);
/* May two views of one storage touch the same byte? Conservative: true when unsure. */
bool mt_may_overlap(const mt_tensor *a, const mt_tensor *b);

#endif
