/* kernels/cpu/along.c -- the loops of along.h: over lines and blocks, with conversion,
** threads, and stores that pass the caches. */
#include "kernels/cpu/along.h"
#include "kernels/cpu/stream.h"

#define AHEAD 2 /* blocks, of what is fetched while another is written */

/* An argument's place in a step: in the tensor itself, or NULL. */
static char *in_place(const mt_along *j, int k, bool along, char *here,
                      int64_t stride) {
  const int64_t size = mt_cpu_size(j->dtype[k]);
  if (j->dtype[k] != j->work[k]) return NULL;
  if (j->streamed[k]) return along && j->how & MT_ALONG_PAST ? here : NULL;
  return stride == (along && j->how & MT_ALONG_BACK ? -size : size) ? here : NULL;
}

static void write_out(const mt_along *j, int k, int64_t n, const char *from, char *here,
                      int64_t stride, const mt_ahead *ahead) {
  if (j->streamed[k])
    mt_cpu_stream(MT_ISA_PICK(mt_stream), n * stride, from, here, k == MT_ALONG_Y,
                  ahead);
  else
    mt_cpu_store(j->work[k], n, from, j->dtype[k], here, stride);
}

static void run_block(const mt_along *j, int64_t n, bool along, int64_t i,
                      const int64_t *offset, const int64_t *stride, bool quiet,
                      mt_along_state *s) {
  _Alignas(64) char room[MT_ALONG_ARGS][MT_ALONG_BLOCK * 8];
  char *p[MT_ALONG_ARGS], *here[MT_ALONG_ARGS] = {NULL};
  for (int k = 0; k < MT_ALONG_ARGS; k++) {
    if (!j->data[k]) {
      p[k] = room[k];
      continue;
    }
    here[k] = j->data[k] + offset[k] + i * j->stride[k];
    p[k] = in_place(j, k, along, here[k], stride[k]);
    if (p[k]) continue;
    p[k] = room[k];
    if (k >= MT_ALONG_X)
      mt_cpu_load(j->dtype[k], n, here[k], stride[k], j->work[k], p[k]);
  }
  if (quiet) p[MT_ALONG_Y] = NULL;
  j->step(n, along ? j->how : 0, i, p, s);
  const int64_t next = along ? AHEAD * MT_ALONG_BLOCK * stride[MT_ALONG_X]
                             : AHEAD * j->stride[MT_ALONG_X];
  const mt_ahead ahead = {here[MT_ALONG_X] + next,
                          MT_LINE * stride[MT_ALONG_X] / mt_cpu_size(j->work[0])};
  for (int k = 0; k < MT_ALONG_X; k++)
    if (j->data[k] && p[k] == room[k])
      write_out(j, k, n, p[k], here[k], stride[k], &ahead);
}

void mt_along_part(const mt_along *j, const int64_t *offset, int64_t lo, int64_t hi,
                   bool quiet, mt_along_state *s) {
  const int64_t block = j->direct ? MT_SCAN_BLOCK : MT_ALONG_BLOCK;
  for (int64_t i = lo; i < hi; i += block) {
    const int64_t n = hi - i < block ? hi - i : block;
    if (i % (MT_SCAN_BLOCK << 8) == 0 && mt_stopped(j->call)) return;
    run_block(j, n, true, i, offset, j->stride, quiet, s);
  }
}

/* Lines of one step function each, which lie one after the other. */
static void short_lines(const mt_along *j, int64_t lines, const int64_t *offset,
                        mt_along_state *s) {
  char *p[MT_ALONG_ARGS];
  int64_t next[MT_ALONG_ARGS]; /* bytes */
  for (int k = 0; k < MT_ALONG_ARGS; k++) {
    p[k] = j->data[k] ? j->data[k] + offset[k] : (char *)s->at; /* not used */
    next[k] = j->data[k] ? j->others.stride[k][0] : 0;
  }
  for (int64_t i = 0; i < lines; i++) {
    if (i % 1024 == 0 && mt_stopped(j->call)) return;
    j->step(j->length, j->how, 0, p, s);
    for (int k = 0; k < MT_ALONG_ARGS; k++) p[k] += next[k];
  }
}

static void line_range(void *context, int64_t lo, int64_t hi) {
  const mt_along *j = context;
  const bool whole = j->direct && j->length <= MT_SCAN_BLOCK;
  int64_t coord[MT_MAX_DIMS], offset[MT_SPACE_ARGS];
  mt_along_state s;
  mt_space_seek(&j->others, lo, coord, offset);
  while (lo < hi) {
    const int64_t left = j->others.size[0] - coord[0];
    const int64_t lines = !whole ? 1 : left < hi - lo ? left : hi - lo;
    if (whole)
      short_lines(j, lines, offset, &s);
    else
      mt_along_part(j, offset, 0, j->length, false, &s);
    mt_space_advance(&j->others, lines, coord, offset);
    lo += lines;
  }
  mt_cpu_stream_end();
}

static void across_range(void *context, int64_t lo, int64_t hi) { /* blocks of lines */
  const mt_along *j = context;
  const mt_space *o = &j->others;
  int64_t coord[MT_MAX_DIMS], offset[MT_SPACE_ARGS], stride[MT_ALONG_ARGS];
  mt_along_state s;
  for (int k = 0; k < MT_ALONG_ARGS; k++) stride[k] = o->stride[k][0];
  for (int64_t item = lo; item < hi; item++) {
    const int64_t first = item % j->blocks * MT_ALONG_BLOCK, left = o->size[0] - first;
    const int64_t n = left < MT_ALONG_BLOCK ? left : MT_ALONG_BLOCK;
    mt_space_seek(o, item / j->blocks * o->size[0] + first, coord, offset);
    for (int64_t i = 0; i < j->length; i++) {
      if (i % 1024 == 0 && mt_stopped(j->call)) return;
      run_block(j, n, false, i, offset, stride, false, &s);
    }
  }
  mt_cpu_stream_end();
}

/* Take dim d out of v; returns its stride in bytes. */
static int64_t without_dim(const mt_view *v, int d, mt_view *rest) {
  *rest = *v;
  rest->ndim = 0;
  for (int e = 0; e < v->ndim; e++)
    if (e != d) {
      rest->shape[rest->ndim] = v->shape[e];
      rest->stride[rest->ndim++] = v->stride[e];
    }
  return v->ndim > 0 ? v->stride[d] * mt_cpu_size(v->dtype) : 0;
}

/* Does a result pass the caches? If all its blocks begin with a line, or, in reverse,
** end with one. */
static bool streams(const mt_along *j, int k) {
  const int64_t size = mt_cpu_size(j->dtype[k]);
  const bool back = !j->across && j->how & MT_ALONG_BACK;
  const int64_t step = j->across ? j->others.stride[k][0] : j->stride[k];
  if (j->dtype[k] != j->work[k]) return false;
  if (step != (back ? -size : size)) return false;
  for (int d = j->across; d < j->others.ndim; d++)
    if (j->others.stride[k][d] % MT_LINE != 0) return false;
  if (j->across && j->stride[k] % MT_LINE != 0) return false;
  return mt_cpu_streams(j->data[k] + (back ? size : 0),
                        j->others.numel * j->length * size);
}

/* Do lines lie backwards, wherever they are? */
static bool lies_back(const mt_along *j) {
  for (int k = 0; k < MT_ALONG_ARGS; k++)
    if (j->data[k] &&
        (j->dtype[k] != j->work[k] || j->stride[k] != -mt_cpu_size(j->dtype[k])))
      return false;
  return true;
}

void mt_along_make(mt_along *j, const mt_call *call, const mt_view *const *view,
                   int dim, bool reverse, mt_dtype work, mt_along_fn step, int able) {
  const mt_view *x = view[MT_ALONG_X], *arg[MT_ALONG_ARGS] = {NULL};
  mt_view rest[MT_ALONG_ARGS];
  *j = (mt_along){.call = call, .step = step, .how = MT_ALONG_LINE};
  j->length = x->ndim ? x->shape[dim] : 1;
  for (int k = 0; k < MT_ALONG_ARGS; k++) {
    if (!view[k]) continue;
    j->stride[k] = without_dim(view[k], dim, &rest[k]);
    j->data[k] = view[k]->data;
    j->dtype[k] = view[k]->dtype;
    j->work[k] = k == MT_ALONG_AT ? MT_I64 : work;
    if (reverse) {
      if (j->length > 0) j->data[k] += (j->length - 1) * j->stride[k];
      j->stride[k] = -j->stride[k];
    }
    arg[k] = &rest[k];
  }
  if (!arg[MT_ALONG_Y]) arg[MT_ALONG_Y] = arg[MT_ALONG_X];
  mt_space_make(&j->others, MT_ALONG_ARGS, arg, false);
  const int64_t size = mt_cpu_size(x->dtype);
  j->blocks = (j->others.size[0] + MT_ALONG_BLOCK - 1) / MT_ALONG_BLOCK;
  j->across = j->stride[MT_ALONG_X] != size &&
              j->others.stride[MT_ALONG_X][0] == size && j->others.size[0] >= 8;
  if (j->others.numel == 0 || j->length == 0) return;
  if (lies_back(j)) j->how |= able & MT_ALONG_BACK;
  bool past = able & MT_ALONG_PAST;
  j->direct = call->nout < 2 || j->data[MT_ALONG_AT];
  for (int k = 0; k < MT_ALONG_X; k++) {
    j->streamed[k] = j->data[k] && streams(j, k);
    past = past && (j->streamed[k] || !j->data[k]);
  }
  if (past) j->how |= MT_ALONG_PAST;
  for (int k = 0; k < MT_ALONG_ARGS; k++)
    if (j->data[k] && !in_place(j, k, true, j->data[k], j->stride[k]))
      j->direct = false;
}

void mt_along_run(mt_along *j) {
  if (j->others.numel == 0 || j->length == 0) return;
  if (j->across)
    mt_cpu_parallel_for(j->call, j->others.numel / j->others.size[0] * j->blocks,
                        mt_cpu_grain(2 * j->length * MT_ALONG_BLOCK), across_range, j);
  else
    mt_cpu_parallel_for(j->call, j->others.numel, mt_cpu_grain(2 * j->length),
                        line_range, j);
}
