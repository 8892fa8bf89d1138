/* runtime/core/fuse_source_rows.c -- the CUDA C++ of fused kernels that reduce: some lanes
** of a warp, a block or a cluster of blocks for each row, with a loop over the row for each
** level of reductions. What several levels read is held in registers, where all levels
** are straight code: what one has computed, the next need not compute again. */
#include <stdio.h>
#include <stdlib.h>
#include "runtime/core/fuse_writer.h"

static const char *fold_name(int kind) {
  return kind == MT_FUSE_SUM ? "SUM" : kind == MT_FUSE_AMAX ? "AMAX" : "AMIN";
}
static const char *fold_function(int kind) {
  return kind == MT_FUSE_SUM    ? "row_sum"
         : kind == MT_FUSE_AMAX ? "row_amax"
                                : "row_amin";
}

static bool is_full(const mt_fuse_writer *w, int i) {
  return mt_fuse_node_of(w, i)->space == MT_FUSE_FULL;
}

/* Full nodes that the loop of a level needs; the last one's are the results'. */
static void mark_level(const mt_fuse_writer *w, int level) {
  const mt_fuse_program *const p = &w->f->program;
  for (int i = 0; i < p->nnodes; i++) w->need[i] = false;
  for (int k = 0; k < p->nout && level == p->levels - 1; k++)
    if (p->output_space[k] == MT_FUSE_FULL) w->need[p->output[k]] = true;
  for (int i = p->nnodes - 1; i >= 0; i--) {
    const mt_fuse_node *const v = mt_fuse_node_of(w, i);
    if (v->kind >= MT_FUSE_SUM && v->level == level + 1) w->need[v->arg[0]] = true;
    if (!w->need[i] || !is_full(w, i)) continue;
    for (int a = 0; a < v->nargs; a++) w->need[v->arg[a]] = true;
  }
}

static bool level_has_loop(const mt_fuse_writer *w, int level) {
  const mt_fuse_program *const p = &w->f->program;
  for (int k = 0; k < p->nout && level == p->levels - 1; k++)
    if (p->output_space[k] == MT_FUSE_FULL) return true;
  for (int i = 0; i < p->nnodes; i++)
    if (mt_fuse_node_of(w, i)->kind >= MT_FUSE_SUM &&
        mt_fuse_node_of(w, i)->level == level + 1)
      return true;
  return false;
}

static bool is_staged(const mt_fuse_writer *w, int i) {
  return w->v->mode[i] == MT_FUSE_STAGED;
}

static bool by_element(const mt_fuse_writer *w, int i) {
  return w->v->mode[i] == MT_FUSE_BESIDE || w->v->mode[i] == MT_FUSE_APART ||
         is_staged(w, i);
}

static bool is_staged_result(const mt_fuse_writer *w, int k) {
  return w->v->staged && w->f->program.output_space[k] == MT_FUSE_FULL;
}

/* Piece c of input i. */
static void say_piece(const mt_fuse_writer *w, int i, const char *to) {
  const int k = w->place[i];
  const char *const s = mt_fuse_storage(w->v->in_dtype[i]);
  if (is_staged(w, i))
    mt_fuse_say(w->t, "%s = *(const pack<%s, V> *)(p%d + c * V);\n", to, s, k);
  else if (w->v->mode[i] == MT_FUSE_BESIDE)
    mt_fuse_say(w->t, "%s = fetch((const pack<%s, V> *)(p%d + (long long)c * V));\n",
                to, s, k);
  else
    mt_fuse_say(w->t,
                "for (int i = 0; i < V; i++) %s.at[i] = p%d[((long long)c * V + i) * "
                "a.in_step[%d]];\n",
                to, k, k);
}

static void say_loop(const mt_fuse_writer *w) {
  if (w->v->items > 0)
    mt_fuse_say(w->t, "#pragma unroll\n    for (int j = 0; j < ITEMS; j++) {\n"
                      "      const int c = lane + j * STRIDE;\n"
                      "      const bool in = IN(j, c);\n");
  else
    mt_fuse_say(w->t, "    for (int c = lane; c < pieces; c += STRIDE) {\n"
                      "      const bool in = true;\n");
}

/* All that a thread holds of input i, into h<k>. */
static void say_held(const mt_fuse_writer *w, int i, const char *owner) {
  char at[24];
  snprintf(at, sizeof at, "%sh%d[j]", owner, w->place[i]);
  say_loop(w);
  mt_fuse_say(w->t, "      %s = {};\n      if (in) ", at);
  say_piece(w, i, at);
  mt_fuse_say(w->t, "    }\n");
}

static bool is_read(const mt_fuse_writer *w, int i) {
  const mt_fuse_node *const v = mt_fuse_node_of(w, i);
  return v->kind == MT_FUSE_INPUT && w->need[i] && by_element(w, v->index);
}

/* What the loop of a level reads and nobody holds. */
static void say_reads(const mt_fuse_writer *w) {
  for (int i = 0; i < w->f->program.nnodes; i++) {
    if (!is_read(w, i)) continue;
    const int input = mt_fuse_node_of(w, i)->index;
    if (w->held[input]) continue;
    char to[16];
    snprintf(to, sizeof to, "h%d", w->place[input]);
    mt_fuse_say(w->t, "      pack<%s, V> %s = {};\n      if (in) ",
                mt_fuse_storage(w->v->in_dtype[input]), to);
    say_piece(w, input, to);
  }
}

static void say_elements(const mt_fuse_writer *w, int level) {
  const mt_fuse_program *const p = &w->f->program;
  mt_fuse_text *const t = w->t;
  mt_fuse_say(t, "#pragma unroll\n      for (int i = 0; i < V; i++) {\n");
  for (int i = 0; i < p->nnodes; i++) {
    const mt_fuse_node *const v = mt_fuse_node_of(w, i);
    if (is_read(w, i)) {
      char at[40];
      snprintf(at, sizeof at, w->held[v->index] ? "h%d[j].at[i]" : "h%d.at[i]",
               w->place[v->index]);
      mt_fuse_say(t, "        const T x%d = ", w->place[v->index]);
      mt_fuse_say_load(w, v->index, at);
      mt_fuse_say(t, ";\n");
    } else if (w->need[i] && is_full(w, i)) {
      mt_fuse_say_node(w, i, "        ");
    }
    if (v->kind < MT_FUSE_SUM || v->level != level + 1) continue;
    mt_fuse_say(t, "        v%d = in ? WITH_%s(v%d, (T)", i, fold_name(v->kind), i);
    mt_fuse_say_value(w, v->arg[0]);
    mt_fuse_say(t, ") : v%d;\n", i);
  }
  for (int k = 0; k < p->nout && level == p->levels - 1; k++) {
    if (p->output_space[k] != MT_FUSE_FULL) continue;
    mt_fuse_say(t, "        o%d.at[i] = %s(", k, mt_fuse_store_of(w->v->out_dtype[k]));
    mt_fuse_say_value(w, p->output[k]);
    mt_fuse_say(t, ");\n");
  }
  mt_fuse_say(t, "      }\n");
}

/* The loop of one level over the row. */
static void say_level(const mt_fuse_writer *w, int level) {
  const mt_fuse_program *const p = &w->f->program;
  const bool last = level == p->levels - 1;
  mt_fuse_text *const t = w->t;
  if (!level_has_loop(w, level)) return;
  mark_level(w, level);
  for (int i = 0; i < p->nnodes; i++) {
    const mt_fuse_node *const v = mt_fuse_node_of(w, i);
    if (v->kind >= MT_FUSE_SUM && v->level == level + 1)
      mt_fuse_say(t, "    T v%d = %s;\n", i,
                  v->kind == MT_FUSE_SUM    ? "0"
                  : v->kind == MT_FUSE_AMAX ? "-(T)INFINITY"
                                            : "(T)INFINITY");
  }
  say_loop(w);
  say_reads(w);
  for (int k = 0; k < p->nout && last; k++)
    if (p->output_space[k] == MT_FUSE_FULL)
      mt_fuse_say(t, "      pack<%s, V> o%d;\n", mt_fuse_storage(w->v->out_dtype[k]),
                  k);
  say_elements(w, level);
  for (int k = 0; k < p->nout && last; k++)
    if (p->output_space[k] == MT_FUSE_FULL)
      mt_fuse_say(t, "      if (in) *(pack<%s, V> *)(q%d + (long long)c * V) = o%d;\n",
                  mt_fuse_storage(w->v->out_dtype[k]), k, k);
  mt_fuse_say(t, "    }\n");
  for (int i = 0; i < p->nnodes; i++) {
    const mt_fuse_node *const v = mt_fuse_node_of(w, i);
    if (v->kind >= MT_FUSE_SUM && v->level == level + 1)
      mt_fuse_say(t, "    v%d = %s(v%d, turn);\n", i, fold_function(v->kind), i);
  }
}

/* Which inputs several levels read, into held. */
static void find_reread(const mt_fuse_writer *w) {
  int levels[MT_FUSE_MAX_INPUTS] = {0};
  for (int i = 0; i < w->f->nin; i++) w->held[i] = false;
  for (int level = 0; level < w->f->program.levels; level++) {
    mark_level(w, level);
    for (int i = 0; i < w->f->program.nnodes; i++) {
      const mt_fuse_node *const v = mt_fuse_node_of(w, i);
      if (v->kind == MT_FUSE_INPUT && v->space == MT_FUSE_FULL && w->need[i])
        w->held[v->index] = ++levels[v->index] > 1;
    }
  }
}

int mt_fuse_count_reread(mt_fused *f) {
  if (f->reread > 0) return f->reread - 1;
  mt_fuse_writer w = {.f = f};
  w.need = malloc((size_t)f->program.nnodes + MT_FUSE_MAX_INPUTS + 1);
  if (!w.need) return f->nin; /* then they are read anew */
  w.held = w.need + f->program.nnodes;
  find_reread(&w);
  int count = 0;
  for (int i = 0; i < f->nin; i++) count += w.held[i];
  free(w.need);
  f->reread = count + 1;
  return count;
}

/* What the first level reads is held, too: all of it is under way at once. Of several rows
** that is all that differs among them. */
static void choose_held(const mt_fuse_writer *w) {
  find_reread(w);
  mark_level(w, 0);
  for (int i = 0; i < w->f->program.nnodes; i++) {
    const mt_fuse_node *const v = mt_fuse_node_of(w, i);
    if (v->kind == MT_FUSE_INPUT && w->need[i]) w->held[v->index] = true;
  }
  for (int i = 0; i < w->f->nin; i++) {
    const bool own = !w->v->staged || is_staged(w, i);
    w->held[i] =
        (w->held[i] || (w->v->rows > 1 && own)) && w->v->items > 0 && by_element(w, i);
  }
}

static bool is_addressed(const mt_fuse_writer *w, int i) {
  return w->v->mode[i] != MT_FUSE_UNUSED && w->v->mode[i] != MT_FUSE_HOST;
}

/* struct held: what a thread holds of a row, and where the row's elements begin. */
static void say_struct(const mt_fuse_writer *w) {
  const mt_fuse_variant *const v = w->v;
  mt_fuse_say(w->t, "struct held {\n");
  for (int k = 0; k < w->f->program.nout; k++)
    mt_fuse_say(w->t, "  %s *q%d;\n", mt_fuse_storage(v->out_dtype[k]), k);
  for (int i = 0; i < w->f->nin; i++) {
    const char *const s = mt_fuse_storage(v->in_dtype[i]);
    const int k = w->place[i];
    if (is_addressed(w, i)) mt_fuse_say(w->t, "  const %s *p%d;\n", s, k);
    if (v->mode[i] == MT_FUSE_ONE) mt_fuse_say(w->t, "  %s one%d;\n", s, k);
    if (w->held[i]) mt_fuse_say(w->t, "  pack<%s, V> h%d[ITEMS];\n", s, k);
  }
  mt_fuse_say(w->t, "};\n");
}

static void say_base(const mt_fuse_writer *w, const char *type, char name, int k,
                     bool staged) {
  if (staged)
    mt_fuse_say(w->t,
                "    %s *%c%d = stage_%c%d + (int)(row - first) * (int)a.length;\n",
                type, name, k, name, k);
  else
    mt_fuse_say(w->t, "    %s *%c%d = (%s *)a.%s[%d];\n", type, name, k, type,
                name == 'q' ? "out" : "in", k);
}

/* Where the row's elements begin. */
static void say_offsets(const mt_fuse_writer *w) {
  const mt_fuse_variant *const v = w->v;
  const int nout = w->f->program.nout;
  const char *const index = v->wide ? "long long" : "unsigned";
  mt_fuse_text *const t = w->t;
  mt_fuse_say(t, "    %s rest = (%s)row, m;\n    (void)rest, (void)m;\n", index, index);
  for (int k = 0; k < nout; k++)
    say_base(w, mt_fuse_storage(v->out_dtype[k]), 'q', k, is_staged_result(w, k));
  for (int i = 0; i < w->f->nin; i++) {
    char type[32];
    snprintf(type, sizeof type, "const %s", mt_fuse_storage(v->in_dtype[i]));
    if (is_addressed(w, i)) say_base(w, type, 'p', w->place[i], is_staged(w, i));
  }
  for (int d = 0; d < v->ndim; d++) {
    if (d + 1 < v->ndim)
      mt_fuse_say(t, "    m = rest %% (%s)a.size[%d], rest /= (%s)a.size[%d];\n", index,
                  d, index, d);
    else
      mt_fuse_say(t, "    m = rest;\n");
    for (int k = 0; k < nout; k++)
      if (!is_staged_result(w, k))
        mt_fuse_say(t, "    q%d += m * a.out_stride[%d][%d];\n", k, k, d);
    for (int i = 0; i < w->f->nin; i++)
      if (is_addressed(w, i) && !is_staged(w, i))
        mt_fuse_say(t, "    p%d += m * a.in_stride[%d][%d];\n", w->place[i],
                    w->place[i], d);
  }
}

/* void load(held &s, ...): all that is read of the row at once. */
static void say_load(const mt_fuse_writer *w) {
  mt_fuse_text *const t = w->t;
  mt_fuse_say(
      t, "static __device__ __forceinline__ void load(held &s, const arguments &a,\n"
         "    long long row, long long first, int lane, int pieces) {\n");
  say_offsets(w);
  for (int k = 0; k < w->f->program.nout; k++)
    mt_fuse_say(t, "    s.q%d = q%d;\n", k, k);
  for (int i = 0; i < w->f->nin; i++) {
    const int k = w->place[i];
    if (is_addressed(w, i)) mt_fuse_say(t, "    s.p%d = p%d;\n", k, k);
    if (w->v->mode[i] == MT_FUSE_ONE)
      mt_fuse_say(t, "    s.one%d = __ldg(p%d);\n", k, k);
  }
  for (int i = 0; i < w->f->nin; i++)
    if (w->held[i]) say_held(w, i, "s.");
  mt_fuse_say(t, "}\n");
}

static void say_locals(const mt_fuse_writer *w) {
  const mt_fuse_variant *const v = w->v;
  mt_fuse_text *const t = w->t;
  for (int k = 0; k < w->f->program.nout; k++)
    mt_fuse_say(t, "    %s *const q%d = s.q%d;\n", mt_fuse_storage(v->out_dtype[k]), k,
                k);
  for (int i = 0; i < w->f->nin; i++) {
    const int k = w->place[i];
    const char *const s = mt_fuse_storage(v->in_dtype[i]);
    char at[24];
    if (v->mode[i] == MT_FUSE_HOST)
      mt_fuse_say(t, "    const T x%d = (T)a.value[%d];\n", k, k);
    if (v->mode[i] == MT_FUSE_ONE) {
      snprintf(at, sizeof at, "s.one%d", k);
      mt_fuse_say(t, "    const T x%d = ", k);
      mt_fuse_say_load(w, i, at);
      mt_fuse_say(t, ";\n");
    } else if (w->held[i]) {
      mt_fuse_say(t, "    const pack<%s, V> (&h%d)[ITEMS] = s.h%d;\n", s, k, k);
    } else if (is_addressed(w, i)) {
      mt_fuse_say(t, "    const %s *const p%d = s.p%d;\n", s, k, k);
    }
  }
}

/* void finish(const held &s, ...): the row's results. */
static void say_finish(const mt_fuse_writer *w) {
  const mt_fuse_program *const p = &w->f->program;
  mt_fuse_text *const t = w->t;
  mt_fuse_say(t, "static __device__ __forceinline__ void finish(const held &s,\n"
                 "    const arguments &a, int lane, int pieces, int &turn) {\n");
  say_locals(w);
  for (int level = 0; level < p->levels; level++) {
    for (int i = 0; i < p->nnodes; i++) {
      const mt_fuse_node *const v = mt_fuse_node_of(w, i);
      if (is_full(w, i) || v->level != level) continue;
      if (v->kind == MT_FUSE_LENGTH)
        mt_fuse_say(t, "    const T v%d = (T)a.length;\n", i);
      mt_fuse_say_node(w, i, "    ");
    }
    say_level(w, level);
  }
  for (int k = 0; k < p->nout; k++) {
    if (p->output_space[k] == MT_FUSE_FULL) continue;
    mt_fuse_say(t, "    if (lane == 0) *q%d = %s(", k,
                mt_fuse_store_of(w->v->out_dtype[k]));
    mt_fuse_say_value(w, p->output[k]);
    mt_fuse_say(t, ");\n");
  }
  mt_fuse_say(t, "}\n");
}

/* Short rows that lie one behind the other, but in no pieces: a block's rows pass through
** shared memory, whole, since what lanes read of them would touch each line many times. */
static void say_stages(const mt_fuse_writer *w) {
  const char *const format =
      "__shared__ __align__(16) %s stage_%c%d[GROUP * LANES * ITEMS * V];\n";
  for (int i = 0; i < w->f->nin; i++)
    if (is_staged(w, i))
      mt_fuse_say(w->t, format, mt_fuse_storage(w->v->in_dtype[i]), 'p', w->place[i]);
  for (int k = 0; k < w->f->program.nout; k++)
    if (is_staged_result(w, k))
      mt_fuse_say(w->t, format, mt_fuse_storage(w->v->out_dtype[k]), 'q', k);
}

static const char stage_copy[] =
    "template <class S> static __device__ void copy(S *to, const S *from, int n) {\n"
    "  const int own = threadIdx.y * LANES + threadIdx.x, all = LANES * blockDim.y;\n"
    "  const int words = n * (int)sizeof(S) / 16;\n"
    "#pragma unroll 4\n"
    "  for (int i = own; i < words; i += all) ((int4 *)to)[i] = ((const int4 "
    "*)from)[i];\n"
    "  for (int i = words * (16 / (int)sizeof(S)) + own; i < n; i += all)\n"
    "    to[i] = from[i];\n"
    "}\n";

static void say_stage_in(const mt_fuse_writer *w) {
  if (!w->v->staged) return;
  mt_fuse_say(w->t,
              "    const long long at = first * a.length;\n"
              "    const int n = (int)((a.rows - first < GROUP ? a.rows - first : "
              "GROUP) * a.length);\n");
  for (int i = 0; i < w->f->nin; i++) {
    const int k = w->place[i];
    if (is_staged(w, i))
      mt_fuse_say(w->t, "    copy(stage_p%d, (const %s *)a.in[%d] + at, n);\n", k,
                  mt_fuse_storage(w->v->in_dtype[i]), k);
  }
  mt_fuse_say(w->t, "    __syncthreads();\n");
}

static void say_stage_out(const mt_fuse_writer *w) {
  if (!w->v->staged) return;
  mt_fuse_say(w->t, "    __syncthreads();\n");
  for (int k = 0; k < w->f->program.nout; k++)
    if (is_staged_result(w, k))
      mt_fuse_say(w->t, "    copy((%s *)a.out[%d] + at, stage_q%d, n);\n",
                  mt_fuse_storage(w->v->out_dtype[k]), k, k);
}

/* Does a thread hold so little, in few pieces, that three blocks of 512 find room? */
static bool is_light(const mt_fuse_writer *w) {
  size_t bytes = 0;
  for (int i = 0; i < w->f->nin; i++)
    if (w->held[i])
      bytes += mt_dtype_size((mt_dtype)w->v->in_dtype[i]) * w->v->items * w->v->width;
  return w->v->compute == MT_F32 && bytes <= 64 && w->v->items <= 4;
}

void mt_fuse_say_rows(const mt_fuse_writer *w) {
  const mt_fuse_variant *const v = w->v;
  const bool f64 = v->compute == MT_F64;
  mt_fuse_text *const t = w->t;
  choose_held(w);
  mt_fuse_say(
      t,
      "#define LANES %d\n#define CLUSTER %d\n#define ITEMS %d\n"
      "#define EXACT %d\n#define ROWS %d\n#define T_NAME \"%s\"\n"
      "#define T_REGISTER \"%s\"\n#define T_BYTES %d\nconstexpr int V = %d;\n%s",
      v->lanes, v->cluster, v->items, v->exact, v->rows, f64 ? "f64" : "f32",
      f64 ? "d" : "f", f64 ? 8 : 4, v->width, mt_fuse_folds);
  mt_fuse_say(t, "#define GROUP %d\n%s", v->blocks * v->rows,
              v->staged ? stage_copy : "");
  say_stages(w);
  say_struct(w);
  say_load(w);
  say_finish(w);
  mt_fuse_say(t, "extern \"C\" __global__ void ");
  if (v->cluster > 1) mt_fuse_say(t, "__cluster_dims__(CLUSTER, 1, 1) ");
  mt_fuse_say(
      t,
      "__launch_bounds__(%d%s)\n"
      "    " MT_FUSE_KERNEL "(const __grid_constant__ arguments a) {\n"
      "  const int pieces = (int)a.length / V, step = blockDim.y * ROWS;\n"
      "  const int lane = threadIdx.x + blockIdx.x %% CLUSTER * LANES;\n"
      "  int turn = 0;\n"
      "%s"
      "  for (long long first = (long long)(blockIdx.x / CLUSTER) * step; first < "
      "a.rows;\n"
      "       first += (long long)(gridDim.x / CLUSTER) * step) {\n",
      v->lanes * v->blocks, v->lanes == 512 && is_light(w) ? ", 3" : "",
      v->cluster > 1 ? "  meet();\n" : ""); /* before one writes to another */
  say_stage_in(w);
  mt_fuse_say(
      t, "    held s[ROWS];\n"
         "#pragma unroll\n"
         "    for (int r = 0; r < ROWS; r++) {\n"
         "      const long long own = first + r * blockDim.y + threadIdx.y;\n"
         /* all lanes stay: the last row is made several times */
         "      load(s[r], a, own < a.rows ? own : a.rows - 1, first, lane, pieces);\n"
         "    }\n"
         "#pragma unroll\n"
         "    for (int r = 0; r < ROWS; r++) finish(s[r], a, lane, pieces, turn);\n");
  say_stage_out(w);
  mt_fuse_say(t, "  }\n}\n");
}
