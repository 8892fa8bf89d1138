/* runtime/core/fuse_source_rows.c -- the CUDA C++ of fused kernels that reduce: a warp or
** a block for each row, with a loop over the row for each level of reductions. */
#include <stdio.h>
#include <stdlib.h>
#include "runtime/core/fuse_writer.h"

static const char row_folds[] =
    "#define FOLD(name, with)                                            \\\n"
    "  static __device__ T name(T x) {                                   \\\n"
    "    for (int m = LANES > 32 ? 16 : LANES / 2; m > 0; m /= 2) {      \\\n"
    "      const T y = __shfl_xor_sync(~0u, x, m);                       \\\n"
    "      x = with(x, y);                                               \\\n"
    "    }                                                               \\\n"
    "    if (LANES <= 32) return x;                                      \\\n"
    "    __shared__ T part[32];                                          \\\n"
    "    __syncthreads();                                                \\\n"
    "    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;          \\\n"
    "    __syncthreads();                                                \\\n"
    "    x = part[threadIdx.x % (LANES > 32 ? LANES / 32 : 1)];          \\\n"
    "    for (int m = LANES / 64; m > 0; m /= 2) {                       \\\n"
    "      const T y = __shfl_xor_sync(~0u, x, m);                       \\\n"
    "      x = with(x, y);                                               \\\n"
    "    }                                                               \\\n"
    "    return x;                                                       \\\n"
    "  }\n"
    "#define WITH_SUM(x, y) ((x) + (y))\n"
    "#define WITH_AMAX(x, y) ((x) > (y) || (x) != (x) ? (x) : (y))\n"
    "#define WITH_AMIN(x, y) ((x) < (y) || (x) != (x) ? (x) : (y))\n"
    "FOLD(row_sum, WITH_SUM)\n"
    "FOLD(row_amax, WITH_AMAX)\n"
    "FOLD(row_amin, WITH_AMIN)\n";

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

/* A piece of input i, at piece c of the row: into h<k>. */
static void say_piece(const mt_fuse_writer *w, int i, const char *to) {
  const int k = w->place[i];
  const char *const s = mt_fuse_storage(w->v->in_dtype[i]);
  if (w->v->mode[i] == MT_FUSE_BESIDE)
    mt_fuse_say(w->t, "%s = *(const pack<%s, V> *)(p%d + (long long)c * V);\n", to, s,
                k);
  else
    mt_fuse_say(w->t,
                "for (int i = 0; i < V; i++) %s.at[i] = p%d[((long long)c * V + i) * "
                "a.in_step[%d]];\n",
                to, k, k);
}

static bool by_element(const mt_fuse_writer *w, int i) {
  return w->v->mode[i] == MT_FUSE_BESIDE || w->v->mode[i] == MT_FUSE_APART;
}

static void say_loop(const mt_fuse_writer *w) {
  if (w->v->items > 0)
    mt_fuse_say(w->t,
                "#pragma unroll\n    for (int j = 0; j < %d; j++) {\n"
                "      const int c = threadIdx.x + j * LANES;\n      if (c >= pieces) "
                "continue;\n",
                w->v->items);
  else
    mt_fuse_say(w->t, "    for (int c = threadIdx.x; c < pieces; c += LANES) {\n");
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
  for (int i = 0; i < p->nnodes; i++) {
    const mt_fuse_node *const v = mt_fuse_node_of(w, i);
    if (v->kind != MT_FUSE_INPUT || !w->need[i] || !by_element(w, v->index)) continue;
    if (w->held[v->index]) continue;
    char to[16];
    snprintf(to, sizeof to, "h%d", w->place[v->index]);
    mt_fuse_say(t, "      pack<%s, V> %s;\n      ",
                mt_fuse_storage(w->v->in_dtype[v->index]), to);
    say_piece(w, v->index, to);
  }
  for (int k = 0; k < p->nout && last; k++)
    if (p->output_space[k] == MT_FUSE_FULL)
      mt_fuse_say(t, "      pack<%s, V> o%d;\n", mt_fuse_storage(w->v->out_dtype[k]),
                  k);
  mt_fuse_say(t, "#pragma unroll\n      for (int i = 0; i < V; i++) {\n");
  for (int i = 0; i < p->nnodes; i++) {
    const mt_fuse_node *const v = mt_fuse_node_of(w, i);
    if (w->need[i] && v->kind == MT_FUSE_INPUT && by_element(w, v->index)) {
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
    mt_fuse_say(t, "        v%d = WITH_%s(v%d, (T)", i, fold_name(v->kind), i);
    mt_fuse_say_value(w, v->arg[0]);
    mt_fuse_say(t, ");\n");
  }
  for (int k = 0; k < p->nout && last; k++) {
    if (p->output_space[k] != MT_FUSE_FULL) continue;
    mt_fuse_say(t, "        o%d.at[i] = %s(", k, mt_fuse_store_of(w->v->out_dtype[k]));
    mt_fuse_say_value(w, p->output[k]);
    mt_fuse_say(t, ");\n");
  }
  mt_fuse_say(t, "      }\n");
  for (int k = 0; k < p->nout && last; k++)
    if (p->output_space[k] == MT_FUSE_FULL)
      mt_fuse_say(t, "      *(pack<%s, V> *)(q%d + (long long)c * V) = o%d;\n",
                  mt_fuse_storage(w->v->out_dtype[k]), k, k);
  mt_fuse_say(t, "    }\n");
  for (int i = 0; i < p->nnodes; i++) {
    const mt_fuse_node *const v = mt_fuse_node_of(w, i);
    if (v->kind >= MT_FUSE_SUM && v->level == level + 1)
      mt_fuse_say(t, "    v%d = %s(v%d);\n", i, fold_function(v->kind), i);
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

static void choose_held(const mt_fuse_writer *w) {
  find_reread(w);
  for (int i = 0; i < w->f->nin; i++)
    w->held[i] = w->held[i] && w->v->items > 0 && by_element(w, i);
}

/* Where the row's elements begin. */
static void say_offsets(const mt_fuse_writer *w) {
  const mt_fuse_variant *const v = w->v;
  const int nout = w->f->program.nout;
  mt_fuse_text *const t = w->t;
  mt_fuse_say(t, "    long long rest = row, m;\n    (void)rest, (void)m;\n");
  for (int k = 0; k < nout; k++) {
    const char *const s = mt_fuse_storage(v->out_dtype[k]);
    mt_fuse_say(t, "    %s *q%d = (%s *)a.out[%d];\n", s, k, s, k);
  }
  for (int i = 0; i < w->f->nin; i++) {
    const char *const s = mt_fuse_storage(v->in_dtype[i]);
    if (v->mode[i] != MT_FUSE_UNUSED && v->mode[i] != MT_FUSE_HOST)
      mt_fuse_say(t, "    const %s *p%d = (const %s *)a.in[%d];\n", s, w->place[i], s,
                  w->place[i]);
  }
  for (int d = 0; d < v->ndim; d++) {
    if (d + 1 < v->ndim)
      mt_fuse_say(t, "    m = rest %% a.size[%d], rest /= a.size[%d];\n", d, d);
    else
      mt_fuse_say(t, "    m = rest;\n");
    for (int k = 0; k < nout; k++)
      mt_fuse_say(t, "    q%d += m * a.out_stride[%d][%d];\n", k, k, d);
    for (int i = 0; i < w->f->nin; i++)
      if (v->mode[i] != MT_FUSE_UNUSED && v->mode[i] != MT_FUSE_HOST)
        mt_fuse_say(t, "    p%d += m * a.in_stride[%d][%d];\n", w->place[i],
                    w->place[i], d);
  }
}

static void say_row_inputs(const mt_fuse_writer *w) {
  const mt_fuse_variant *const v = w->v;
  for (int i = 0; i < w->f->nin; i++) {
    const int k = w->place[i];
    char at[16];
    if (v->mode[i] == MT_FUSE_HOST)
      mt_fuse_say(w->t, "    const T x%d = (T)a.value[%d];\n", k, k);
    if (v->mode[i] == MT_FUSE_ONE) {
      snprintf(at, sizeof at, "*p%d", k);
      mt_fuse_say(w->t, "    const T x%d = ", k);
      mt_fuse_say_load(w, i, at);
      mt_fuse_say(w->t, ";\n");
    }
    if (!w->held[i]) continue;
    snprintf(at, sizeof at, "h%d[j]", k);
    mt_fuse_say(w->t, "    pack<%s, V> h%d[%d];\n", mt_fuse_storage(v->in_dtype[i]), k,
                v->items);
    say_loop(w);
    mt_fuse_say(w->t, "      ");
    say_piece(w, i, at);
    mt_fuse_say(w->t, "    }\n");
  }
}

void mt_fuse_say_rows(const mt_fuse_writer *w) {
  const mt_fuse_program *const p = &w->f->program;
  mt_fuse_text *const t = w->t;
  choose_held(w);
  mt_fuse_say(t, "#define LANES %d\n%s", w->v->lanes, row_folds);
  mt_fuse_say(
      t,
      "extern \"C\" __global__ void __launch_bounds__(%d)\n"
      "    " MT_FUSE_KERNEL "(const __grid_constant__ arguments a) {\n"
      "  constexpr int V = %d;\n"
      "  const int pieces = int(a.length / V);\n"
      "  for (long long first = (long long)blockIdx.x * blockDim.y; first < a.rows;\n"
      "       first += (long long)gridDim.x * blockDim.y) {\n"
      "    const long long own = first + threadIdx.y;\n" /* all lanes stay: the last */
      "    const long long row = own < a.rows ? own : a.rows - 1;\n" /* row is made */
      ,                                                              /* twice */
      w->v->lanes * w->v->blocks, w->v->width);
  say_offsets(w);
  say_row_inputs(w);
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
    mt_fuse_say(t, "    if (threadIdx.x == 0) *q%d = %s(", k,
                mt_fuse_store_of(w->v->out_dtype[k]));
    mt_fuse_say_value(w, p->output[k]);
    mt_fuse_say(t, ");\n");
  }
  mt_fuse_say(t, "  }\n}\n");
}
