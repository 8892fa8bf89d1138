/* runtime/core/fuse_gpu.c -- fused operators on GPUs: picks a kernel for how the arguments
** lie, compiles it once, launches it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/toolchain.h"
#include "runtime/core/fuse_source.h"

/* A kernel of one program, on one device. */
typedef struct mt_fuse_kernel {
  struct mt_fuse_kernel *next;
  int device;
  mt_fuse_variant variant;
  mt_function *function; /* lives as long as the process */
} mt_fuse_kernel;

typedef struct plan {
  mt_fused *f;
  const char *name;
  const mt_call *call;
  const mt_fuse_loops *loops;
  int nout, nin;                 /* nin: inputs that are used */
  int input[MT_FUSE_MAX_INPUTS]; /* which those are */
  mt_fuse_variant v;
  mt_launch launch;
  int nwords;
  int64_t word[]; /* the kernel's arguments */
} plan;

void mt_fused_free_gpu(mt_fused *f) {
  for (mt_fuse_kernel *k = f->kernel; k;) {
    mt_fuse_kernel *const next = k->next;
    free(k);
    k = next;
  }
  f->kernel = NULL;
}

/* ---- how the arguments lie ---- */

static const mt_view *in_view(const plan *p, int k) { return p->call->in[p->input[k]]; }

/* Of an argument, in dim d; elements. */
static int64_t out_stride(const plan *p, int k, int d) {
  return p->loops->stride[k][d];
}
static int64_t in_stride(const plan *p, int k, int d) {
  return p->loops->stride[p->nout + p->input[k]][d];
}

static bool fits(const mt_view *v, int64_t stride, int width) {
  const size_t bytes = mt_dtype_size(v->dtype) * (size_t)width;
  return (uintptr_t)v->data % bytes == 0 && stride % width == 0;
}

/* Does an argument of these strides lie in pieces of width elements, dim 0 being that of
** the pieces? */
static bool in_pieces(const plan *p, const mt_view *v, const int64_t *stride,
                      int width) {
  for (int d = 1; d < p->loops->ndim; d++)
    if (p->loops->size[d] > 1 && !fits(v, stride[d], width)) return false;
  return fits(v, 0, width);
}

/* As many elements as 16 bytes of the widest dtype hold, if all lie so. */
static int piece_width(const plan *p, bool whole_rows) {
  size_t widest = 1;
  for (int k = 0; k < p->nout; k++) {
    const size_t size = mt_dtype_size(p->call->out[k]->dtype);
    if (out_stride(p, k, 0) == 1 && size > widest) widest = size;
  }
  for (int k = 0; k < p->nin; k++) {
    const size_t size = mt_dtype_size(in_view(p, k)->dtype);
    if (p->v.mode[p->input[k]] == MT_FUSE_BESIDE && size > widest) widest = size;
  }
  int width = 16 / (int)(widest < 2 ? 2 : widest);
  for (; width > 1; width /= 2) {
    bool all = !whole_rows || p->loops->size[0] % width == 0;
    for (int k = 0; k < p->nout && all; k++)
      all = out_stride(p, k, 0) != 1 ||
            in_pieces(p, p->call->out[k], p->loops->stride[k], width);
    for (int k = 0; k < p->nin && all; k++)
      all = p->v.mode[p->input[k]] != MT_FUSE_BESIDE ||
            in_pieces(p, in_view(p, k), p->loops->stride[p->nout + p->input[k]], width);
    if (all) break;
  }
  return width;
}

static void find_modes(plan *p) {
  for (int k = 0; k < p->nout; k++) p->v.out_dtype[k] = (uint8_t)p->call->out[k]->dtype;
  for (int i = 0; i < p->f->nin; i++) {
    const mt_view *const v = p->call->in[i];
    if (!v) continue;
    const int64_t stride = p->loops->stride[p->nout + i][0];
    const bool one = p->f->program.reduces && p->f->in[i].space == MT_FUSE_ROW;
    p->input[p->nin++] = i;
    p->v.in_dtype[i] = v->host ? MT_F64 : (uint8_t)v->dtype;
    p->v.mode[i] = v->host              ? MT_FUSE_HOST
                   : one || stride == 0 ? MT_FUSE_ONE
                   : stride == 1        ? MT_FUSE_BESIDE
                                        : MT_FUSE_APART;
  }
}

/* ---- arguments of the kernel ---- */

static void put(plan *p, int64_t word) { p->word[p->nwords++] = word; }

static void put_addresses(plan *p) {
  for (int k = 0; k < p->nout; k++) put(p, (int64_t)(intptr_t)p->call->out[k]->data);
  for (int k = 0; k < p->nin; k++) put(p, (int64_t)(intptr_t)in_view(p, k)->data);
  put(p, 0); /* the arrays in the text are never empty */
  for (int k = 0; k < p->nin; k++) {
    const mt_view *const v = in_view(p, k);
    const double x = v->host ? mt_load_f64(v->dtype, v->data) : 0;
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    put(p, bits);
  }
  put(p, 0);
}

static void put_strides(plan *p, int first) {
  const int nd = p->loops->ndim - first;
  for (int d = first; d < p->loops->ndim; d++) put(p, p->loops->size[d]);
  put(p, 1);
  for (int k = 0; k < p->nout; k++) {
    for (int d = 0; d < nd; d++) put(p, out_stride(p, k, first + d));
    put(p, 0);
  }
  for (int k = 0; k < p->nin; k++) {
    for (int d = 0; d < nd; d++) put(p, in_stride(p, k, first + d));
    put(p, 0);
  }
  for (int d = 0; d <= nd; d++) put(p, 0); /* of no input */
  for (int k = 0; k < p->nin; k++) put(p, in_stride(p, k, 0));
  put(p, 0);
}

/* ---- elementwise ---- */

/* At most two loops, of which the inner goes along what lies side by side. */
static bool is_in_pieces(const plan *p) {
  const mt_fuse_loops *const l = p->loops;
  if (l->ndim > 2 || (l->ndim == 2 && l->size[1] >= INT32_MAX)) return false;
  if (l->size[0] >= (int64_t)UINT32_MAX - 1024) return false;
  for (int k = 0; k < p->nout; k++)
    if (out_stride(p, k, 0) != 1 && l->size[0] > 1) return false;
  for (int k = 0; k < p->nin; k++)
    if (p->v.mode[p->input[k]] == MT_FUSE_APART) return false;
  return true;
}

static void plan_pieces(plan *p) {
  const mt_fuse_loops *const l = p->loops;
  const int width = piece_width(p, false);
  const int64_t whole = l->size[0] / width, left = l->size[0] % width;
  const int64_t rows = l->ndim == 2 ? l->size[1] : 1;
  p->v.layout = MT_FUSE_PIECES;
  p->v.width = (uint8_t)width;
  put_addresses(p);
  for (int k = 0; k < p->nout; k++)
    put(p, l->ndim == 2
               ? out_stride(p, k, 1) * (int64_t)mt_dtype_size(p->call->out[k]->dtype)
               : 0);
  for (int k = 0; k < p->nin; k++)
    put(p, l->ndim == 2
               ? in_stride(p, k, 1) * (int64_t)mt_dtype_size(in_view(p, k)->dtype)
               : 0);
  put(p, 0);
  put(p, rows);
  put(p, whole);
  put(p, left);
  const int64_t pieces = whole + (left > 0);
  uint32_t x = 256;
  while (x > 1 && (int64_t)x / 2 >= pieces) x /= 2;
  const uint32_t y = 256 / x;
  const int64_t down = (rows + y - 1) / y;
  const uint32_t across = down < 65535 ? (uint32_t)down : 65535;
  p->launch = (mt_launch){.grid = {(uint32_t)((pieces + x - 1) / x), across,
                                   (uint32_t)((down + across - 1) / across)},
                          .block = {x, y, 1}};
}

static void plan_strided(plan *p) {
  const mt_fuse_loops *const l = p->loops;
  int64_t numel = 1;
  for (int d = 0; d < l->ndim; d++) numel *= l->size[d];
  p->v.layout = MT_FUSE_STRIDED;
  p->v.ndim = (uint8_t)l->ndim;
  p->v.wide = numel >= INT64_C(1) << 31;
  for (int k = 0; k < p->nin; k++) { /* what the text does not depend on */
    uint8_t *const mode = &p->v.mode[p->input[k]];
    if (*mode != MT_FUSE_HOST) *mode = MT_FUSE_APART;
  }
  put_addresses(p);
  put(p, numel);
  put(p, 1);
  put_strides(p, 0);
  const int64_t blocks = (numel + 255) / 256;
  p->launch = (mt_launch){.grid = {blocks < 8192 ? (uint32_t)blocks : 8192, 1, 1},
                          .block = {256, 1, 1}};
}

/* ---- rows ---- */

/* Of the widest input that lies along the row, and at least 4. */
static int64_t piece_bytes(const plan *p) {
  size_t widest = 4;
  for (int k = 0; k < p->nin; k++) {
    const int mode = p->v.mode[p->input[k]];
    const size_t size = mt_dtype_size(in_view(p, k)->dtype);
    if ((mode == MT_FUSE_BESIDE || mode == MT_FUSE_APART) && size > widest)
      widest = size;
  }
  return p->v.width * (int64_t)widest;
}

/* So many threads that each holds some 64 bytes of an input: the rate of a copy for rows
** of 64 to 8,192 floats. Longer rows are held by 1,024 threads, and the longest are read
** anew for each reduction, mostly from a cache. */
static void choose_lanes(plan *p) {
  const int64_t pieces = p->loops->size[0] / p->v.width, bytes = piece_bytes(p);
  const int64_t most = bytes < 64 ? 64 / bytes : 1;
  int64_t lanes = 8;
  while (lanes < 1024 && pieces > lanes * most) lanes *= 2;
  int64_t items = (pieces + lanes - 1) / lanes;
  if (items > most) {
    const int64_t held = mt_fuse_count_reread(p->f) * items * bytes;
    if (held == 0 || held > 128) items = 0, lanes = 512;
  } else if (items == 0) {
    items = 1;
  }
  p->v.lanes = (uint16_t)lanes;
  p->v.items = (uint8_t)items;
  p->v.blocks = lanes <= 32 ? (uint16_t)(128 / lanes) : 1;
}

static mt_status plan_rows(plan *p) {
  const mt_fuse_loops *const l = p->loops;
  int64_t rows = 1;
  for (int d = 1; d < l->ndim; d++) rows *= l->size[d];
  if (l->size[0] >= INT32_MAX) {
    return mt_fail(MT_EUNSUPPORTED, "%s: rows of %lld elements on a GPU", p->name,
                   (long long)l->size[0]);
  }
  p->v.layout = MT_FUSE_ROWS;
  p->v.ndim = (uint8_t)(l->ndim - 1);
  p->v.width = (uint8_t)piece_width(p, true);
  choose_lanes(p);
  put_addresses(p);
  put(p, l->size[0]);
  put(p, rows);
  put_strides(p, 1);
  const int64_t blocks = (rows + p->v.blocks - 1) / p->v.blocks;
  p->launch =
      (mt_launch){.grid = {blocks < INT32_MAX ? (uint32_t)blocks : INT32_MAX, 1, 1},
                  .block = {p->v.lanes, p->v.blocks, 1}};
  return MT_OK;
}

/* ---- compiling ---- */

static mt_status compile(const plan *p, const mt_toolchain *tc,
                         const mt_backend *backend, mt_function **function) {
  char *const source = mt_fuse_cuda(p->f, &p->v);
  if (!source) return mt_fail(MT_EMEMORY, "%s: out of memory", p->name);
  mt_program *program = NULL;
  char *log = NULL;
  const char *const options[] = {"-w"}; /* words that no formula has */
  mt_status status =
      tc->compile(p->call->device, "fuse.cu", source, options, 1, &program, &log);
  if (status == MT_OK) status = tc->function(program, MT_FUSE_KERNEL, function);
  if (status != MT_OK) {
    status = mt_fail(status, "%s: %s%s%.300s", p->name, backend->device->error_text(),
                     log ? "\n" : "", log ? log : "");
  }
  free(log);
  free(source);
  return status;
}

static mt_status find_kernel(const plan *p, const mt_toolchain *tc,
                             const mt_backend *backend, mt_function **function) {
  for (mt_fuse_kernel *k = p->f->kernel; k; k = k->next) {
    if (k->device == p->call->device && memcmp(&k->variant, &p->v, sizeof p->v) == 0) {
      *function = k->function;
      return MT_OK;
    }
  }
  mt_fuse_kernel *const made = calloc(1, sizeof *made);
  if (!made) return mt_fail(MT_EMEMORY, "%s: out of memory", p->name);
  const mt_status status = compile(p, tc, backend, &made->function);
  if (status != MT_OK) {
    free(made);
    return status;
  }
  made->device = p->call->device;
  memcpy(&made->variant, &p->v, sizeof p->v);
  made->next = p->f->kernel;
  p->f->kernel = made;
  *function = made->function;
  return MT_OK;
}

/* ---- launching ---- */

static mt_status plan_call(plan *p, mt_dtype compute) {
  p->nout = p->call->nout;
  p->v.compute = (uint8_t)compute;
  find_modes(p);
  if (p->f->program.reduces) return plan_rows(p);
  if (is_in_pieces(p))
    plan_pieces(p);
  else
    plan_strided(p);
  return MT_OK;
}

static mt_status launch(plan *p, mt_dtype compute) {
  const mt_device device = {MT_CUDA, (int8_t)p->call->device};
  const mt_backend *const backend = mt_backend_of(device);
  if (!backend) return MT_EDEVICE;
  const mt_toolchain *const tc = backend->table ? backend->table("toolchain") : NULL;
  if (!tc) return mt_fail(MT_EUNSUPPORTED, "%s: no compiler for GPUs", p->name);
  mt_function *function = NULL;
  MT_TRY(plan_call(p, compute));
  MT_TRY(find_kernel(p, tc, backend, &function));
  void *params[] = {p->word};
  const mt_status status =
      tc->launch(function, p->call->device, p->call->stream, &p->launch, params);
  if (status == MT_OK) return MT_OK;
  return mt_fail(status, "%s: %s", p->name, backend->device->error_text());
}

mt_status mt_fused_run_gpu(mt_fused *f, const char *name, mt_dtype compute,
                           const mt_call *call, const mt_fuse_loops *loops) {
  const size_t words = (size_t)(f->nin + call->nout + 2) * (MT_MAX_DIMS + 6) + 64;
  plan *const p = malloc(sizeof *p + words * sizeof *p->word);
  if (!p) return mt_fail(MT_EMEMORY, "%s: out of memory", name);
  memset(p, 0, sizeof *p);
  p->f = f, p->name = name, p->call = call, p->loops = loops;
  const mt_status status = launch(p, compute);
  free(p);
  return status;
}

/* ---- the text ---- */

mt_status mt_fuse_source(mt_fuse *f, char **text) {
  mt_fused *fused;
  mt_fuse_variant v;
  MT_TRY(mt_fused_get(f, (UINT64_C(1) << f->nout) - 1, 0, &fused));
  memset(&v, 0, sizeof v);
  v.compute = MT_F32;
  v.layout = f->reduces ? MT_FUSE_ROWS : MT_FUSE_PIECES;
  v.width = 4;
  v.ndim = f->reduces;
  v.lanes = 256, v.blocks = 1, v.items = 1;
  for (int i = 0; i < f->nin; i++)
    v.mode[i] = fused->in[i].used ? MT_FUSE_BESIDE : MT_FUSE_UNUSED;
  for (int k = 0; k < fused->program.nout; k++)
    v.out_dtype[k] = fused->out[k].boolean ? MT_BOOL : MT_F32;
  *text = mt_fuse_cuda(fused, &v);
  return *text ? MT_OK : mt_fail(MT_EMEMORY, "fuse: out of memory");
}
