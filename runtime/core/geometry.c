/* runtime/core/geometry.c -- arithmetic on shapes and strides: sizes, broadcasting,
 * views. */
#include <stdio.h>
#include <string.h>
#include "runtime/core/op.h"

int64_t mt_numel(const mt_view *v) {
  int64_t n = 1;
  for (int d = 0; d < v->ndim; d++) n *= v->shape[d];
  return n;
}

bool mt_is_contiguous(const mt_view *v) {
  int64_t expected = 1;
  for (int d = v->ndim - 1; d >= 0; d--) {
    if (v->shape[d] == 0) return true;
    if (v->shape[d] != 1 && v->stride[d] != expected) {
      for (int e = 0; e < d; e++)
        if (v->shape[e] == 0) return true;
      return false;
    }
    expected *= v->shape[d];
  }
  return true;
}

void mt_channels_last_strides(const int64_t *shape, int64_t *stride) {
  stride[1] = 1;
  stride[3] = shape[1];
  stride[2] = stride[3] * shape[3];
  stride[0] = stride[2] * shape[2];
}

bool mt_is_channels_last(const mt_view *v) {
  int64_t stride[4];
  if (v->ndim != 4 || v->stride[1] != 1 || mt_is_contiguous(v)) return false;
  mt_channels_last_strides(v->shape, stride);
  for (int d = 0; d < 4; d++)
    if (v->shape[d] != 1 && v->stride[d] != stride[d]) return false;
  return true;
}

bool mt_same_shape(const mt_view *a, const mt_view *b) {
  if (a->ndim != b->ndim) return false;
  for (int d = 0; d < a->ndim; d++)
    if (a->shape[d] != b->shape[d]) return false;
  return true;
}

void mt_default_strides(int ndim, const int64_t *shape, int64_t *stride) {
  int64_t step = 1;
  for (int d = ndim - 1; d >= 0; d--) {
    stride[d] = step;
    step *= shape[d] > 0 ? shape[d] : 1;
  }
}

mt_status mt_shape_numel(int ndim, const int64_t *shape, size_t element_bytes,
                         int64_t *numel) {
  if (ndim < 0 || ndim > MT_MAX_DIMS)
    return mt_fail(MT_ESHAPE, "%d dims, at most %d are possible", ndim, MT_MAX_DIMS);
  bool empty = false, overflow = false;
  int64_t n = 1;
  for (int d = 0; d < ndim; d++) {
    if (shape[d] < 0)
      return mt_fail(MT_ESHAPE, "size %lld of dim %d in shape %s is negative",
                     (long long)shape[d], d + 1, mt_shape_text(ndim, shape));
    if (shape[d] == 0)
      empty = true;
    else
      overflow |= __builtin_mul_overflow(n, shape[d], &n);
  }
  int64_t bytes;
  if (overflow || __builtin_mul_overflow(n, (int64_t)element_bytes, &bytes))
    return mt_fail(MT_ESHAPE, "shape %s has more elements than memory can address",
                   mt_shape_text(ndim, shape));
  *numel = empty ? 0 : n;
  return MT_OK;
}

mt_status mt_broadcast(int *ndim, int64_t *shape, const mt_view *with) {
  const int n = *ndim > with->ndim ? *ndim : with->ndim;
  int64_t merged[MT_MAX_DIMS];
  for (int d = 0; d < n; d++) { /* dims are matched from the right */
    const int a = d - (n - *ndim), b = d - (n - with->ndim);
    const int64_t p = a < 0 ? 1 : shape[a], q = b < 0 ? 1 : with->shape[b];
    if (p != q && p != 1 && q != 1)
      return mt_fail(MT_ESHAPE, "shapes %s and %s do not broadcast: %lld and %lld",
                     mt_shape_text(*ndim, shape), mt_view_text(with), (long long)p,
                     (long long)q);
    merged[d] = p == 1 ? q : p;
  }
  *ndim = n;
  if (n) memcpy(shape, merged, (size_t)n * sizeof *shape);
  return MT_OK;
}

void mt_view_expand(const mt_view *v, int ndim, const int64_t *shape,
                    mt_view *expanded) {
  expanded->data = v->data;
  expanded->dtype = v->dtype;
  expanded->ndim = ndim;
  expanded->host = v->host;
  for (int d = 0; d < ndim; d++) {
    const int s = d - (ndim - v->ndim);
    expanded->shape[d] = shape[d];
    expanded->stride[d] = s < 0 || v->shape[s] != shape[d] ? 0 : v->stride[s];
  }
}

void mt_view_copy(mt_view *to, const mt_view *from) {
  to->data = from->data;
  to->dtype = from->dtype;
  to->ndim = from->ndim;
  to->host = from->host;
  for (int d = 0; d < from->ndim; d++)
    to->shape[d] = from->shape[d], to->stride[d] = from->stride[d];
}

const char *mt_shape_text(int ndim, const int64_t *shape) {
  static _Thread_local char buffers[8][22 * MT_MAX_DIMS + 3];
  static _Thread_local unsigned next;
  char *text = buffers[next++ % 8], *p = text;
  *p++ = '[';
  for (int d = 0; d < ndim && d < MT_MAX_DIMS; d++)
    p += sprintf(p, d ? ", %lld" : "%lld", (long long)shape[d]);
  *p++ = ']';
  *p = 0;
  return text;
}

const char *mt_view_text(const mt_view *v) { return mt_shape_text(v->ndim, v->shape); }

#define OVERLAP_STEPS 4096 /* after so many, elements count as sharing memory */

/* Is there a sum of a[k] * stride[k], |a[k]| < size[k], that is 0, with some a[k] other
** than 0? Then two elements lie in one place. The dims below n can still move it by as
** much as `span` of each; strides are in ascending order. */
static bool meets(int n, const int64_t *size, const int64_t *stride,
                  const int64_t *span, int64_t sum, bool moved, int *steps) {
  if (n == 0) return moved && sum == 0;
  const int64_t step = stride[n - 1], most = size[n - 1] - 1, rest = span[n - 1];
  /* Only these leave what the smaller dims can make up for. */
  int64_t from = (-rest - sum) / step - 1, to = (rest - sum) / step + 1;
  if (from < -most) from = -most;
  if (to > most) to = most;
  if (!moved && from < 0) from = 0; /* the rest is the same with the signs changed */
  for (int64_t a = from; a <= to; a++) {
    if (--*steps < 0) return true;
    if (meets(n - 1, size, stride, span, sum + a * step, moved || a != 0, steps))
      return true;
  }
  return false;
}

bool mt_overlaps_itself(const mt_view *v) {
  int64_t size[MT_MAX_DIMS], stride[MT_MAX_DIMS], span[MT_MAX_DIMS], sum = 0;
  int n = 0, steps = OVERLAP_STEPS;
  bool apart = true; /* each stride passes the span of all smaller dims */
  for (int d = 0; d < v->ndim; d++) {
    if (v->shape[d] == 0) return false;
    if (v->shape[d] == 1) continue;
    if (v->stride[d] == 0) return true;
    int at = n++;
    for (; at > 0 && stride[at - 1] > v->stride[d]; at--)
      size[at] = size[at - 1], stride[at] = stride[at - 1];
    size[at] = v->shape[d], stride[at] = v->stride[d];
  }
  for (int k = 0; k < n; k++) {
    span[k] = sum; /* elements, of those before k */
    apart = apart && stride[k] > sum;
    sum += (size[k] - 1) * stride[k];
  }
  return !apart && meets(n, size, stride, span, 0, false, &steps);
}

static void byte_range(const mt_view *v, const char **lo, const char **hi) {
  int64_t last = 0;
  for (int d = 0; d < v->ndim; d++) last += (v->shape[d] - 1) * v->stride[d];
  *lo = v->data;
  *hi = v->data + (last + 1) * (int64_t)mt_dtype_size(v->dtype);
}

bool mt_may_overlap(const mt_tensor *a, const mt_tensor *b) {
  if (a->storage->data != b->storage->data) return false;
  if (!mt_numel(&a->v) || !mt_numel(&b->v)) return false;
  const char *alo, *ahi, *blo, *bhi;
  byte_range(&a->v, &alo, &ahi);
  byte_range(&b->v, &blo, &bhi);
  return alo < bhi && blo < ahi;
}

bool mt_view_strides(const mt_view *v, int ndim, const int64_t *shape,
                     int64_t *stride) {
  if (mt_numel(v) == 0) {
    mt_default_strides(ndim, shape, stride);
    return true;
  }
  /* Walk both shapes from the right; a run of old dims that lie in memory as one dim
  ** (stride[d] = shape[d+1] * stride[d+1]) may be cut up anew. */
  int d = v->ndim - 1, e = ndim - 1;
  while (d >= 0 && v->shape[d] == 1) d--;
  while (d >= 0) {
    const int64_t base = v->stride[d];
    int64_t run = v->shape[d], taken = 1;
    int64_t expected = base * v->shape[d];
    d--;
    while (d >= 0 && (v->shape[d] == 1 || v->stride[d] == expected)) {
      run *= v->shape[d];
      if (v->shape[d] != 1) expected = v->stride[d] * v->shape[d];
      d--;
    }
    while (e >= 0 && taken < run) {
      stride[e] = base * taken;
      taken *= shape[e];
      e--;
    }
    if (taken != run) return false;
  }
  for (; e >= 0; e--) stride[e] = e + 1 < ndim ? stride[e + 1] * shape[e + 1] : 1;
  return true;
}

mt_status mt_infer_shape(int64_t numel, int ndim, int64_t *shape, const mt_view *of) {
  int unknown = -1;
  int64_t known = 1;
  bool overflow = false;
  for (int d = 0; d < ndim; d++) {
    if (shape[d] == -1 && unknown < 0)
      unknown = d;
    else if (shape[d] < 0)
      return mt_fail_arg(MT_ESHAPE, 2, "shape %s: %s", mt_shape_text(ndim, shape),
                         shape[d] == -1 ? "only one size can be -1"
                                        : "a size is negative");
    else
      overflow |= __builtin_mul_overflow(known, shape[d], &known);
  }
  if (unknown >= 0 && !overflow && known > 0 && numel % known == 0)
    shape[unknown] = numel / known;
  else if (unknown >= 0 || overflow || known != numel)
    return mt_fail_arg(MT_ESHAPE, 2, "shape %s of %lld elements does not fit shape %s",
                       mt_view_text(of), (long long)numel, mt_shape_text(ndim, shape));
  return MT_OK;
}

static _Thread_local char device_text[16];

const char *mt_device_name(mt_device d) {
  if (d.kind == MT_CPU) return "cpu";
  snprintf(device_text, sizeof device_text, "cuda:%d", d.index);
  return device_text;
}

mt_status mt_device_parse(const char *name, mt_device *d) {
  if (!strcmp(name, "cpu")) return *d = (mt_device){MT_CPU, 0}, MT_OK;
  if (!strcmp(name, "cuda")) return *d = (mt_device){MT_CUDA, 0}, MT_OK;
  if (!strncmp(name, "cuda:", 5)) {
    const char *p = name + 5;
    int index = 0;
    while (*p >= '0' && *p <= '9' && index < 128) index = index * 10 + (*p++ - '0');
    if (p > name + 5 && !*p && index < 128)
      return *d = (mt_device){MT_CUDA, (int8_t)index}, MT_OK;
  }
  return mt_fail(MT_EDEVICE, "unknown device '%.40s': want cpu, cuda or cuda:N", name);
}
