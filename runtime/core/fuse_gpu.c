/* runtime/core/fuse_gpu.c -- fused operators on GPUs: picks a kernel for how the arguments
** lie, compiles it once, launches it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/toolchain.h"
#include "runtime/core/context.h"
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

/* Rows that a thread works on at once, of which it holds so many pieces: as many as give
** that many pieces under way, and need few enough registers. */
static uint8_t rows_at_once(const plan *p, int64_t items, int64_t most) {
  const int64_t held = items * piece_bytes(p) * (p->nin > 0 ? p->nin : 1);
  int64_t rows = most / items < 8 ? most / items : 8;
  if (rows > 256 / held) rows = 256 / held;
  return (uint8_t)(rows > 1 ? rows : 1);
}

/* Up to a warp's lanes: few of them idle, and loads of neighbours beside each other. Where
** a row is short, a thread works on several. */
static void choose_short(plan *p, int64_t pieces, int64_t most) {
  mt_fuse_variant *const v = &p->v;
  int64_t lanes = 1;
  while (lanes < pieces) lanes *= 2;
  if (lanes > 32) lanes = 32;
  int64_t best = lanes;
  double share = 0;
  for (; lanes > 0 && (pieces + lanes - 1) / lanes <= most; lanes /= 2) {
    const int64_t held = (pieces + lanes - 1) / lanes * lanes;
    if ((double)pieces / (double)held > share + 0.1)
      share = (double)pieces / (double)held, best = lanes;
  }
  v->lanes = (uint16_t)best;
  v->items = (uint8_t)((pieces + best - 1) / best);
  v->rows = rows_at_once(p, v->items, most);
  v->blocks = (uint16_t)(128 / best);
}

/* Asking the driver takes a millisecond. */
static mt_status describe(const plan *p, const mt_device_api *api,
                          mt_device_info *info) {
  static mt_device_info known[MT_MAX_GPUS];
  static bool is_known[MT_MAX_GPUS];
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  const int device = p->call->device;
  mt_status status = MT_OK;
  pthread_mutex_lock(&lock);
  if (!is_known[device]) status = api->describe(device, &known[device]);
  is_known[device] = status == MT_OK;
  *info = known[device];
  pthread_mutex_unlock(&lock);
  return status == MT_OK ? MT_OK
                         : mt_fail(status, "%s: %s", p->name, api->error_text());
}

/* Blocks and clusters. What is read once, or is too long to be held, is read in a loop. */
static mt_status choose_long(plan *p, int64_t pieces, int64_t most, int64_t bytes,
                             int64_t rows, const mt_device_api *api) {
  mt_fuse_variant *const v = &p->v;
  const int reread = mt_fuse_count_reread(p->f);
  mt_device_info gpu = {.major = 0};
  if (pieces > 512 * most) MT_TRY(describe(p, api, &gpu));
  const int64_t clusters = gpu.major >= 9 ? 8 : 1;
  int64_t lanes = 64, cluster = 1;
  while (lanes < 512 && pieces > lanes * most) lanes *= 2;
  while (reread > 0 && cluster < clusters && pieces > lanes * cluster * most)
    cluster *= 2;
  if (reread * bytes * pieces > lanes * cluster * 128) lanes = 1024;
  int64_t items = (pieces + lanes * cluster - 1) / (lanes * cluster);
  if (items > most && (reread == 0 || reread * bytes * items > 128)) {
    items = 0, lanes = 512;
    while (cluster < clusters && rows * cluster < 2 * gpu.multiprocessors) cluster *= 2;
  }
  v->lanes = (uint16_t)lanes;
  v->items = (uint8_t)items;
  v->cluster = (uint8_t)cluster;
  return MT_OK;
}

/* Do all rows of an argument lie one behind the other, from an address that pieces of 16
** bytes may begin at? */
static bool is_packed(const plan *p, const mt_view *v, const int64_t *stride) {
  return stride[0] == 1 && stride[1] == p->loops->size[0] &&
         (uintptr_t)v->data % 16 == 0;
}

/* Let short rows that lie in no pieces of 16 bytes pass through shared memory, where what
** is read of them lies so, or is the same for all rows. */
static bool choose_stages(plan *p, int64_t most) {
  const mt_fuse_loops *const l = p->loops;
  mt_fuse_variant *const v = &p->v;
  size_t bytes = 0; /* of an element of each */
  if (l->ndim != 2) return false;
  for (int k = 0; k < p->nout; k++) {
    const mt_view *const out = p->call->out[k];
    if (p->f->program.output_space[k] != MT_FUSE_FULL) continue;
    if (!is_packed(p, out, l->stride[k])) return false;
    bytes += mt_dtype_size(out->dtype);
  }
  for (int k = 0; k < p->nin; k++) {
    const int i = p->input[k];
    const int64_t *const stride = l->stride[p->nout + i];
    if (v->mode[i] == MT_FUSE_APART) return false;
    if (v->mode[i] != MT_FUSE_BESIDE || stride[1] == 0) continue;
    if (!is_packed(p, in_view(p, k), stride)) return false;
    bytes += mt_dtype_size(in_view(p, k)->dtype);
  }
  if (bytes == 0 || bytes * 128 * (size_t)most * v->width > 40960) return false;
  for (int k = 0; k < p->nin; k++) {
    const int i = p->input[k];
    if (v->mode[i] == MT_FUSE_BESIDE && l->stride[p->nout + i][1] != 0)
      v->mode[i] = MT_FUSE_STAGED;
  }
  const int64_t pieces = l->size[0] / v->width;
  int64_t lanes = 1;
  while (pieces > lanes * most) lanes *= 2;
  v->staged = true;
  v->lanes = (uint16_t)lanes;
  v->items = (uint8_t)((pieces + lanes - 1) / lanes);
  v->rows = rows_at_once(p, v->items, most);
  v->blocks = (uint16_t)(128 / lanes);
  return true;
}

/* Some 64 bytes of an input for each thread give the rate of a copy. */
static mt_status choose_lanes(plan *p, int64_t rows, const mt_device_api *api) {
  mt_fuse_variant *const v = &p->v;
  const int64_t pieces = p->loops->size[0] / v->width, bytes = piece_bytes(p);
  const int64_t most = bytes < 64 ? 64 / bytes : 1;
  v->blocks = v->rows = v->cluster = 1;
  const bool short_pieces = pieces > 0 && bytes < 16 && pieces <= 8 * most;
  if (pieces > 32 * most)
    MT_TRY(choose_long(p, pieces, most, bytes, rows, api));
  else if (!short_pieces || !choose_stages(p, most))
    choose_short(p, pieces > 0 ? pieces : 1, most);
  v->exact = pieces == (int64_t)v->lanes * v->cluster * v->items;
  return MT_OK;
}

static mt_status plan_rows(plan *p, const mt_device_api *api) {
  const mt_fuse_loops *const l = p->loops;
  int64_t rows = 1;
  for (int d = 1; d < l->ndim; d++) rows *= l->size[d];
  if (l->size[0] >= INT32_MAX) {
    return mt_fail(MT_EUNSUPPORTED, "%s: rows of %lld elements on a GPU", p->name,
                   (long long)l->size[0]);
  }
  p->v.layout = MT_FUSE_ROWS;
  p->v.ndim = (uint8_t)(l->ndim - 1);
  p->v.wide = rows > UINT32_MAX;
  p->v.width = (uint8_t)piece_width(p, true);
  MT_TRY(choose_lanes(p, rows, api));
  put_addresses(p);
  put(p, l->size[0]);
  put(p, rows);
  put_strides(p, 1);
  const int64_t own = (int64_t)p->v.blocks * p->v.rows, cluster = p->v.cluster;
  const int64_t groups = (rows + own - 1) / own, most = INT32_MAX / cluster;
  p->launch =
      (mt_launch){.grid = {(uint32_t)((groups < most ? groups : most) * cluster), 1, 1},
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
  /* words that no formula has; without textures and the like, a tenth less time */
  const char *const options[] = {"-w", "--minimal"};
  mt_status status =
      tc->compile(p->call->device, "fuse.cu", source, options, 2, &program, &log);
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

static mt_status plan_call(plan *p, mt_dtype compute, const mt_device_api *api) {
  p->nout = p->call->nout;
  p->v.compute = (uint8_t)compute;
  find_modes(p);
  if (p->f->program.reduces) return plan_rows(p, api);
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
  MT_TRY(plan_call(p, compute, backend->device));
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
  v.lanes = 256, v.blocks = v.items = v.rows = v.cluster = 1;
  for (int i = 0; i < f->nin; i++)
    v.mode[i] = fused->in[i].used ? MT_FUSE_BESIDE : MT_FUSE_UNUSED;
  for (int k = 0; k < fused->program.nout; k++)
    v.out_dtype[k] = fused->out[k].boolean ? MT_BOOL : MT_F32;
  *text = mt_fuse_cuda(fused, &v);
  return *text ? MT_OK : mt_fail(MT_EMEMORY, "fuse: out of memory");
}
