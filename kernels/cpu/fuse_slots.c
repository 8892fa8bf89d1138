/* kernels/cpu/fuse_slots.c -- fused programs: the values of which a row has one. */
#include "kernels/cpu/fuse_work.h"
#include "kernels/cpu/stream.h"

void mt_fuse_set_slot(const mt_fuse_job *j, char *slot, int64_t r, double x) {
  if (j->code->compute == MT_F64)
    ((double *)slot)[r] = x;
  else
    ((float *)slot)[r] = (float)x;
}

static void load_slot(const mt_fuse_worker *w, const mt_step *s, char *to) {
  const mt_fuse_job *j = w->j;
  const mt_view *v = j->call->in[s->index];
  const int arg = j->nout + s->index;
  const int64_t size = mt_cpu_size(v->dtype), *at = w->offset + arg * j->batch;
  if (j->loops->ndim <= 2) {
    const int64_t stride = j->loops->ndim == 2 ? j->loops->stride[arg][1] : 0;
    mt_cpu_load(v->dtype, w->rows, v->data + at[0] * size, stride * size,
                j->code->compute, to);
    return;
  }
  for (int64_t r = 0; r < w->rows; r++)
    mt_cpu_load(v->dtype, 1, v->data + at[r] * size, 0, j->code->compute,
                to + r * j->code->width);
}

static void store_slot(const mt_fuse_worker *w, const mt_step *s) {
  const mt_fuse_job *j = w->j;
  const mt_view *v = mt_fuse_view(j, s->index);
  const int64_t size = mt_cpu_size(v->dtype), *at = w->offset + s->index * j->batch;
  const char *from = w->slot + s->arg[0] * j->slot_bytes;
  const mt_dtype dtype = s->width == 1 ? MT_U8 : j->code->compute;
  if (j->loops->ndim <= 2) {
    const int64_t stride = j->loops->ndim == 2 ? j->loops->stride[s->index][1] : 0;
    mt_cpu_store(dtype, w->rows, from, v->dtype, v->data + at[0] * size, stride * size);
    return;
  }
  for (int64_t r = 0; r < w->rows; r++)
    mt_cpu_store(dtype, 1, from + r * s->width, v->dtype, v->data + at[r] * size, 0);
}

void mt_fuse_slot_step(mt_fuse_worker *w, const mt_step *s) {
  const mt_fuse_job *j = w->j;
  const int64_t bytes = j->slot_bytes, padded = mt_fuse_round_up(w->rows);
  char *to = w->slot + s->to * bytes;
  switch (s->kind) {
  case MT_SLOT_LOAD:
    load_slot(w, s, to);
    mt_fuse_pad(to, w->rows, s->width);
    break;
  case MT_SLOT_LENGTH:
    for (int64_t r = 0; r < padded; r++) mt_fuse_set_slot(j, to, r, (double)j->length);
    break;
  case MT_SLOT_FOLDED:
    for (int64_t r = 0; r < w->rows; r++)
      mt_fuse_set_slot(j, to, r, w->cell[s->index * j->batch + r].f);
    mt_fuse_pad(to, w->rows, s->width);
    break;
  case MT_SLOT_ROW: {
    char *p[4] = {to};
    for (int a = 0; a < s->nargs; a++) p[a + 1] = w->slot + s->arg[a] * bytes;
    s->row(padded, p, s->attr);
    break;
  }
  default: store_slot(w, s);
  }
}

/* n elements, whole units, of the value at x. */
static void fill(int64_t n, int width, const char *x, char *to) {
  _Alignas(64) char line[MT_LINE];
  if (width == 1) {
    memset(to, *x, (size_t)n);
    return;
  }
  mt_cpu_pack(MT_LINE / width, width, x, 0, line);
  MT_ISA_PICK(mt_stream)->repeat(n * width / MT_LINE, line, to);
}

void mt_fuse_spread(mt_fuse_worker *w, const mt_step *s, int64_t n, char *home) {
  const mt_fuse_job *j = w->j;
  const char *from = w->slot + s->arg[0] * j->slot_bytes;
  for (int64_t r = 0; r < w->rows; r++)
    fill(mt_fuse_round_up(n), s->width, from + r * s->width,
         home + r * j->pitch * s->width);
  w->at[s->to] = home;
}
