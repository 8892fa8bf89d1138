/* runtime/core/fuse_source.c -- the CUDA C++ of fused kernels. Formulas are those of
** ops.def, and their words those of kernels/words.h, whose text comes along. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/core/fuse_source.h"

/* ---- text ---- */

typedef struct text {
  char *s; /* NULL after a failure */
  size_t n, capacity;
} text;

__attribute__((format(printf, 2, 3))) static void say(text *t, const char *format,
                                                      ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  const int length = vsnprintf(NULL, 0, format, args);
  va_end(args);
  if (t->s && t->n + (size_t)length + 1 > t->capacity) {
    t->capacity = 2 * (t->n + (size_t)length + 1);
    char *const more = realloc(t->s, t->capacity);
    if (!more) free(t->s);
    t->s = more;
  }
  if (t->s) t->n += (size_t)vsnprintf(t->s + t->n, (size_t)length + 1, format, again);
  va_end(again);
}

/* ---- one kernel ---- */

typedef struct writer {
  text *t;
  const mt_fused *f;
  const mt_fuse_variant *v;
  int nin; /* inputs that are used */
  int place[MT_FUSE_MAX_INPUTS]; /* of an input among these */
  bool *need;                    /* [nnodes] of the level being written */
  bool *held;                    /* [f->nin] ROWS: kept in registers */
} writer;

static const mt_fuse_node *node_of(const writer *w, int i) {
  return &w->f->program.node[i];
}

/* ---- elements ---- */

static const char *storage(int dtype) {
  static const char *const names[MT_NDTYPES] = {
      "float", "double", "unsigned short", "unsigned short", "long long",
      "int",   "short",  "signed char",    "unsigned char",  "unsigned char"};
  return names[dtype];
}

static const char half_loads[] =
    "static __device__ T load_f16(unsigned short h) {\n"
    "  float x;\n"
    "  asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(x) : \"h\"(h));\n"
    "  return x;\n"
    "}\n"
    "static __device__ T load_bf16(unsigned short h) {\n"
    "  return __uint_as_float((unsigned)h << 16);\n"
    "}\n"
    "static __device__ unsigned short store_f16(float x) {\n"
    "  unsigned short h;\n"
    "  asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(x));\n"
    "  return h;\n"
    "}\n"
    "static __device__ unsigned short store_bf16(float x) {\n"
    "#if __CUDA_ARCH__ >= 800\n"
    "  unsigned short h;\n"
    "  asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(x));\n"
    "  return h;\n"
    "#else\n"
    "  const unsigned a = __float_as_uint(x);\n"
    "  return x != x ? 0x7fff : (a + 0x7fff + (a >> 16 & 1)) >> 16;\n"
    "#endif\n"
    "}\n";

static const char *load_of(int dtype) {
  return dtype == MT_F16 ? "load_f16" : dtype == MT_BF16 ? "load_bf16" : "(T)";
}

static const char *store_of(int dtype) {
  return dtype == MT_F16    ? "store_f16"
         : dtype == MT_BF16 ? "store_bf16"
         : dtype == MT_F64  ? "(double)"
         : dtype == MT_F32  ? "(float)"
                            : "(unsigned char)";
}

static void say_number(text *t, double x) {
  if (x != x)
    say(t, "((T)NAN)");
  else if (isinf(x))
    say(t, "(%s(T)INFINITY)", x < 0 ? "-" : "");
  else
    say(t, "((T)%.17g)", x);
}

/* ---- the formulas ---- */

/* Does a formula that e is part of name this word? */
static bool names_word(const mt_expr *e, const char *word, size_t n) {
  if (e->kind == MT_EXPR_CALL && strlen(e->name) == n && !strncmp(e->name, word, n))
    return true;
  for (int i = 0; i < e->nargs; i++)
    if (names_word(e->arg[i], word, n)) return true;
  return false;
}

static bool is_wanted(const writer *w, const char *word, size_t n) {
  for (int i = 0; i < w->f->program.nnodes; i++) {
    const mt_fuse_node *const v = node_of(w, i);
    if (v->kind == MT_FUSE_OP && names_word(mt_op_formula((mt_op)v->op, 0), word, n))
      return true;
  }
  return false;
}

/* Is the line of words.h one that defines a word that nothing here needs? Then the
** compiler is spared it: half of its time is reading. */
static bool is_spare(const writer *w, const char *line, size_t n) {
  static const char *const starts[] = {"  MT_WORD_LIBM(T, s, ", "  MT_WORD_FN T mt_",
                                       "  MT_WORD_FN int mt_"};
  for (size_t k = 0; k < sizeof starts / sizeof *starts; k++) {
    const size_t length = strlen(starts[k]);
    if (n <= length || strncmp(line, starts[k], length) != 0) continue;
    const char *const word = line + length;
    const char *const end = strstr(word, k == 0 ? "," : "_##s(");
    const bool whole = k == 0 || memchr(line, '}', n) != NULL; /* in this line */
    return whole && *word != '#' && end && end < line + n && !is_wanted(w, word, (size_t)(end - word));
  }
  return false;
}

/* The words of T only. */
static void say_words(const writer *w) {
  const bool f64 = w->v->compute == MT_F64;
  const char *const other = f64 ? "MT_WORDS_FLOAT(float" : "MT_WORDS_FLOAT(double";
  bool integers = false; /* within the macro of the integers' words */
  for (const char *line = mt_words_text; *line;) {
    const size_t n = strcspn(line, "\n") + 1;
    if (strncmp(line, "#define MT_WORDS_INT", 20) == 0) integers = true;
    const bool left_out = integers || strncmp(line, "MT_WORDS_INT(", 13) == 0 ||
                          strncmp(line, other, strlen(other)) == 0 ||
                          strncmp(line, "#include", 8) == 0 || is_spare(w, line, n);
    if (!left_out) say(w->t, "%.*s", (int)n, line);
    if (n > 1 && line[n - 2] != '\\') integers = false;
    line += n;
  }
}

static void say_op(const writer *w, const mt_opinfo *op) {
  static const char *const names[] = {"a", "b", "c"};
  const bool boolean = op->kind == MT_KIND_PREDICATE || op->kind == MT_KIND_COMPARE;
  say(w->t, "static __device__ __forceinline__ %s op_%s(", boolean ? "int" : "T",
      op->name);
  for (int i = 0; i < op->nin; i++)
    say(w->t, "%sT %s", i > 0 ? ", " : "", op->nin == 1 ? "x" : names[i]);
  for (int slot = 0; slot < op->nattr; slot++) {
    for (int k = 0; k < op->nparams; k++) {
      const mt_param *const p = &op->param[k];
      if (p->type > MT_PARAM_LIST && p->slot == slot) say(w->t, ", T %s", p->name);
    }
  }
  say(w->t, ") { return %s; }\n", op->formula[0]);
}

static void say_ops(const writer *w) {
  bool said[MT_OP_COUNT] = {false};
  for (int i = 0; i < w->f->program.nnodes; i++) {
    const mt_fuse_node *const v = node_of(w, i);
    if (v->kind != MT_FUSE_OP || said[v->op]) continue;
    said[v->op] = true;
    say_op(w, mt_op_info((mt_op)v->op));
  }
}

static void say_head(const writer *w) {
  const bool f64 = w->v->compute == MT_F64;
  say(w->t,
      "#define INFINITY __int_as_float(0x7f800000)\n"
      "#define NAN __int_as_float(0x7fffffff)\n"
      "#define MT_FORMULAS\n");
  say_words(w);
  say(w->t, "#define T %s\n#define SUFFIX %s\n", f64 ? "double" : "float",
      f64 ? "f64" : "f32");
  bool halves = false;
  for (int i = 0; i < w->f->nin; i++)
    halves = halves || (w->v->mode[i] && (MT_HALF_MASK >> w->v->in_dtype[i] & 1u));
  for (int k = 0; k < w->f->program.nout; k++)
    halves = halves || (MT_HALF_MASK >> w->v->out_dtype[k] & 1u);
  if (halves) say(w->t, "%s", half_loads);
  say(w->t, "template <class S, int V> struct alignas(sizeof(S) * V) pack { S at[V]; };\n");
  say_ops(w);
}

/* ---- nodes ---- */

static void say_value(const writer *w, int i) {
  const mt_fuse_node *const v = node_of(w, i);
  if (v->kind == MT_FUSE_NUMBER)
    say_number(w->t, v->number[0]);
  else if (v->kind == MT_FUSE_INPUT)
    say(w->t, "x%d", w->place[v->index]);
  else
    say(w->t, "v%d", i);
}

/* "const T v7 = op_mul(v5, x0);" */
static void say_node(const writer *w, int i, const char *indent) {
  const mt_fuse_node *const v = node_of(w, i);
  if (v->kind != MT_FUSE_OP && v->kind != MT_FUSE_WHERE) return;
  say(w->t, "%sconst %s v%d = ", indent, v->boolean ? "int" : "T", i);
  if (v->kind == MT_FUSE_WHERE) {
    say_value(w, v->arg[0]);
    for (int a = 1; a < 3; a++) {
      say(w->t, a == 1 ? " ? (%s)" : " : (%s)", v->boolean ? "int" : "T");
      say_value(w, v->arg[a]);
    }
    say(w->t, ";\n");
    return;
  }
  const mt_opinfo *const op = mt_op_info((mt_op)v->op);
  say(w->t, "op_%s(", op->name);
  for (int a = 0; a < v->nargs; a++) {
    if (a > 0) say(w->t, ", ");
    say_value(w, v->arg[a]);
  }
  for (int k = 0; k < op->nattr; k++) {
    say(w->t, ", ");
    say_number(w->t, v->number[k]);
  }
  say(w->t, ");\n");
}

static void say_load(const writer *w, int k, const char *what) {
  say(w->t, "%s(%s)", load_of(w->v->in_dtype[k]), what);
}

/* ---- the arguments ---- */

static void say_arguments(const writer *w) {
  const int nout = w->f->program.nout, nin = w->nin, nd = w->v->ndim;
  say(w->t, "struct arguments {\n  char *out[%d], *in[%d];\n  double value[%d];\n", nout,
      nin + 1, nin + 1);
  if (w->v->layout == MT_FUSE_PIECES) {
    say(w->t,
        "  long long out_row[%d], in_row[%d];\n"
        "  long long rows, whole, left;\n",
        nout, nin + 1);
  } else {
    say(w->t, "  long long length, rows, size[%d], out_stride[%d][%d];\n", nd + 1, nout,
        nd + 1);
    say(w->t, "  long long in_stride[%d][%d], in_step[%d];\n", nin + 1, nd + 1, nin + 1);
  }
  say(w->t, "};\n");
}

/* ---- elementwise ---- */

/* void f(x0, x1, y0, ...): one element. */
static void say_function(const writer *w) {
  const mt_fuse_program *const p = &w->f->program;
  const char *separator = "";
  say(w->t, "static __device__ __forceinline__ void f(");
  for (int k = 0; k < w->nin; k++) {
    say(w->t, "%sT x%d", separator, k);
    separator = ", ";
  }
  for (int k = 0; k < p->nout; k++) {
    say(w->t, "%s%s &y%d", separator, storage(w->v->out_dtype[k]), k);
    separator = ", ";
  }
  say(w->t, ") {\n");
  for (int i = 0; i < p->nnodes; i++) say_node(w, i, "  ");
  for (int k = 0; k < p->nout; k++) {
    say(w->t, "  y%d = %s(", k, store_of(w->v->out_dtype[k]));
    say_value(w, p->output[k]);
    say(w->t, ");\n");
  }
  say(w->t, "}\n");
}

static void say_pieces(const writer *w) {
  const mt_fuse_variant *const v = w->v;
  const int nout = w->f->program.nout;
  text *const t = w->t;
  say(t,
      "extern \"C\" __global__ void __launch_bounds__(256)\n"
      "    " MT_FUSE_KERNEL "(const __grid_constant__ arguments a) {\n"
      "  constexpr int V = %d;\n"
      "  const unsigned c = blockIdx.x * blockDim.x + threadIdx.x;\n"
      "  const long long r =\n"
      "      (blockIdx.z * gridDim.y + blockIdx.y) * blockDim.y + threadIdx.y;\n"
      "  if (r >= a.rows || c > a.whole) return;\n",
      v->width);
  for (int i = 0; i < w->f->nin; i++) {
    const int k = w->place[i];
    const char *const s = storage(v->in_dtype[i]);
    char at[120];
    if (v->mode[i] == MT_FUSE_UNUSED) continue;
    if (v->mode[i] == MT_FUSE_HOST) {
      say(t, "  const T x%d = (T)a.value[%d];\n", k, k);
    } else if (v->mode[i] == MT_FUSE_ONE) {
      snprintf(at, sizeof at, "*(const %s *)(a.in[%d] + r * a.in_row[%d])", s, k, k);
      say(t, "  const T x%d = ", k);
      say_load(w, i, at);
      say(t, ";\n");
    } else {
      say(t,
          "  const %s *p%d = (const %s *)(a.in[%d] + r * a.in_row[%d]) + "
          "(long long)c * V;\n",
          s, k, s, k, k);
    }
  }
  for (int k = 0; k < nout; k++) {
    const char *const s = storage(v->out_dtype[k]);
    say(t, "  %s *q%d = (%s *)(a.out[%d] + r * a.out_row[%d]) + (long long)c * V;\n", s,
        k, s, k, k);
  }
  for (int tail = 0; tail < 2; tail++) {
    say(t, tail ? "  } else {\n    for (int i = 0; i < a.left; i++)\n"
                : "  if (c < a.whole) {\n");
    for (int i = 0; i < w->f->nin && !tail; i++) {
      const char *const s = storage(v->in_dtype[i]);
      if (v->mode[i] == MT_FUSE_BESIDE)
        say(t, "    const pack<%s, V> h%d = *(const pack<%s, V> *)p%d;\n", s,
            w->place[i], s, w->place[i]);
    }
    for (int k = 0; k < nout && !tail; k++)
      say(t, "    pack<%s, V> o%d;\n", storage(v->out_dtype[k]), k);
    if (!tail) say(t, "#pragma unroll\n    for (int i = 0; i < V; i++)\n");
    say(t, "      f(");
    for (int i = 0, n = 0; i < w->f->nin; i++) {
      char at[32];
      if (v->mode[i] == MT_FUSE_UNUSED) continue;
      if (n++ > 0) say(t, ", ");
      if (v->mode[i] == MT_FUSE_BESIDE) {
        snprintf(at, sizeof at, tail ? "p%d[i]" : "h%d.at[i]", w->place[i]);
        say_load(w, i, at);
      } else {
        say(t, "x%d", w->place[i]);
      }
    }
    for (int k = 0; k < nout; k++)
      say(t, tail ? "%sq%d[i]" : "%so%d.at[i]", w->nin + k > 0 ? ", " : "", k);
    say(t, ");\n");
    for (int k = 0; k < nout && !tail; k++)
      say(t, "    *(pack<%s, V> *)q%d = o%d;\n", storage(v->out_dtype[k]), k, k);
  }
  say(t, "  }\n}\n");
}

static void say_strided(const writer *w) {
  const mt_fuse_variant *const v = w->v;
  const int nout = w->f->program.nout;
  text *const t = w->t;
  const char *const index = v->wide ? "long long" : "unsigned";
  say(t,
      "extern \"C\" __global__ void __launch_bounds__(256)\n"
      "    " MT_FUSE_KERNEL "(const __grid_constant__ arguments a) {\n"
      "  const %s step = (%s)gridDim.x * blockDim.x;\n"
      "  for (%s i = (%s)blockIdx.x * blockDim.x + threadIdx.x; i < a.length;\n"
      "       i += step) {\n"
      "    %s rest = i;\n    long long ",
      index, index, index, index, index);
  for (int k = 0; k < nout; k++) say(t, "%sto%d = 0", k > 0 ? ", " : "", k);
  for (int k = 0; k < w->nin; k++) say(t, ", at%d = 0", k);
  say(t, ";\n");
  for (int d = 0; d < v->ndim; d++) {
    say(t,
        "    { const %s q = rest / (%s)a.size[%d];\n"
        "      const long long m = rest - q * (%s)a.size[%d];\n      rest = q;\n",
        index, index, d, index, d);
    for (int k = 0; k < nout; k++) say(t, "      to%d += m * a.out_stride[%d][%d];\n", k, k, d);
    for (int k = 0; k < w->nin; k++)
      say(t, "      at%d += m * a.in_stride[%d][%d];\n", k, k, d);
    say(t, "    }\n");
  }
  say(t, "    f(");
  for (int i = 0, n = 0; i < w->f->nin; i++) {
    const int k = w->place[i];
    char at[80];
    if (v->mode[i] == MT_FUSE_UNUSED) continue;
    if (n++ > 0) say(t, ", ");
    snprintf(at, sizeof at, "((const %s *)a.in[%d])[at%d]", storage(v->in_dtype[i]), k,
             k);
    if (v->mode[i] == MT_FUSE_HOST)
      say(t, "(T)a.value[%d]", k);
    else
      say_load(w, i, at);
  }
  for (int k = 0; k < nout; k++)
    say(t, "%s((%s *)a.out[%d])[to%d]", w->nin + k > 0 ? ", " : "",
        storage(v->out_dtype[k]), k, k);
  say(t, ");\n  }\n}\n");
}

/* ---- rows ---- */

static const char row_folds[] =
    "#define FOLD(name, with)                                            \\\n"
    "  static __device__ T name(T x) {                                   \\\n"
    "    for (int m = 16; m > 0; m /= 2) {                               \\\n"
    "      const T y = __shfl_xor_sync(~0u, x, m);                       \\\n"
    "      x = with(x, y);                                               \\\n"
    "    }                                                               \\\n"
    "    if (LANES == 32) return x;                                      \\\n"
    "    __shared__ T part[32];                                          \\\n"
    "    __syncthreads();                                                \\\n"
    "    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;          \\\n"
    "    __syncthreads();                                                \\\n"
    "    x = part[threadIdx.x % (LANES / 32)];                           \\\n"
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

static bool is_full(const writer *w, int i) {
  return node_of(w, i)->space == MT_FUSE_FULL;
}

/* Full nodes that the loop of a level needs; the last one's are the results'. */
static void mark_level(const writer *w, int level) {
  const mt_fuse_program *const p = &w->f->program;
  for (int i = 0; i < p->nnodes; i++) w->need[i] = false;
  for (int k = 0; k < p->nout && level == p->levels - 1; k++)
    if (p->output_space[k] == MT_FUSE_FULL) w->need[p->output[k]] = true;
  for (int i = p->nnodes - 1; i >= 0; i--) {
    const mt_fuse_node *const v = node_of(w, i);
    if (v->kind >= MT_FUSE_SUM && v->level == level + 1) w->need[v->arg[0]] = true;
    if (!w->need[i] || !is_full(w, i)) continue;
    for (int a = 0; a < v->nargs; a++) w->need[v->arg[a]] = true;
  }
}

static bool level_has_loop(const writer *w, int level) {
  const mt_fuse_program *const p = &w->f->program;
  for (int k = 0; k < p->nout && level == p->levels - 1; k++)
    if (p->output_space[k] == MT_FUSE_FULL) return true;
  for (int i = 0; i < p->nnodes; i++)
    if (node_of(w, i)->kind >= MT_FUSE_SUM && node_of(w, i)->level == level + 1)
      return true;
  return false;
}

/* A piece of input i, at piece c of the row: into h<k>. */
static void say_piece(const writer *w, int i, const char *to) {
  const int k = w->place[i];
  const char *const s = storage(w->v->in_dtype[i]);
  if (w->v->mode[i] == MT_FUSE_BESIDE)
    say(w->t, "%s = *(const pack<%s, V> *)(p%d + (long long)c * V);\n", to, s, k);
  else
    say(w->t,
        "for (int i = 0; i < V; i++) %s.at[i] = p%d[((long long)c * V + i) * "
        "a.in_step[%d]];\n",
        to, k, k);
}

static bool by_element(const writer *w, int i) {
  return w->v->mode[i] == MT_FUSE_BESIDE || w->v->mode[i] == MT_FUSE_APART;
}

static void say_loop(const writer *w) {
  if (w->v->items > 0)
    say(w->t,
        "#pragma unroll\n    for (int j = 0; j < %d; j++) {\n"
        "      const int c = threadIdx.x + j * LANES;\n      if (c >= pieces) continue;\n",
        w->v->items);
  else
    say(w->t, "    for (int c = threadIdx.x; c < pieces; c += LANES) {\n");
}

/* The loop of one level over the row. */
static void say_level(const writer *w, int level) {
  const mt_fuse_program *const p = &w->f->program;
  const bool last = level == p->levels - 1;
  text *const t = w->t;
  if (!level_has_loop(w, level)) return;
  mark_level(w, level);
  for (int i = 0; i < p->nnodes; i++) {
    const mt_fuse_node *const v = node_of(w, i);
    if (v->kind >= MT_FUSE_SUM && v->level == level + 1)
      say(t, "    T v%d = %s;\n", i,
          v->kind == MT_FUSE_SUM    ? "0"
          : v->kind == MT_FUSE_AMAX ? "-(T)INFINITY"
                                    : "(T)INFINITY");
  }
  say_loop(w);
  for (int i = 0; i < p->nnodes; i++) {
    const mt_fuse_node *const v = node_of(w, i);
    if (v->kind != MT_FUSE_INPUT || !w->need[i] || !by_element(w, v->index)) continue;
    if (w->held[v->index]) continue;
    char to[16];
    snprintf(to, sizeof to, "h%d", w->place[v->index]);
    say(t, "      pack<%s, V> %s;\n      ", storage(w->v->in_dtype[v->index]), to);
    say_piece(w, v->index, to);
  }
  for (int k = 0; k < p->nout && last; k++)
    if (p->output_space[k] == MT_FUSE_FULL)
      say(t, "      pack<%s, V> o%d;\n", storage(w->v->out_dtype[k]), k);
  say(t, "#pragma unroll\n      for (int i = 0; i < V; i++) {\n");
  for (int i = 0; i < p->nnodes; i++) {
    const mt_fuse_node *const v = node_of(w, i);
    if (w->need[i] && v->kind == MT_FUSE_INPUT && by_element(w, v->index)) {
      char at[40];
      snprintf(at, sizeof at, w->held[v->index] ? "h%d[j].at[i]" : "h%d.at[i]",
               w->place[v->index]);
      say(t, "        const T x%d = ", w->place[v->index]);
      say_load(w, v->index, at);
      say(t, ";\n");
    } else if (w->need[i] && is_full(w, i)) {
      say_node(w, i, "        ");
    }
    if (v->kind < MT_FUSE_SUM || v->level != level + 1) continue;
    say(t, "        v%d = WITH_%s(v%d, (T)", i, fold_name(v->kind), i);
    say_value(w, v->arg[0]);
    say(t, ");\n");
  }
  for (int k = 0; k < p->nout && last; k++) {
    if (p->output_space[k] != MT_FUSE_FULL) continue;
    say(t, "        o%d.at[i] = %s(", k, store_of(w->v->out_dtype[k]));
    say_value(w, p->output[k]);
    say(t, ");\n");
  }
  say(t, "      }\n");
  for (int k = 0; k < p->nout && last; k++)
    if (p->output_space[k] == MT_FUSE_FULL)
      say(t, "      *(pack<%s, V> *)(q%d + (long long)c * V) = o%d;\n",
          storage(w->v->out_dtype[k]), k, k);
  say(t, "    }\n");
  for (int i = 0; i < p->nnodes; i++) {
    const mt_fuse_node *const v = node_of(w, i);
    if (v->kind >= MT_FUSE_SUM && v->level == level + 1)
      say(t, "    v%d = %s(v%d);\n", i, fold_function(v->kind), i);
  }
}

/* Which inputs several levels read: they are read once. */
static void choose_held(const writer *w) {
  int *const levels = calloc(MT_FUSE_MAX_INPUTS, sizeof *levels);
  for (int i = 0; i < w->f->nin; i++) w->held[i] = false;
  if (!levels || w->v->items == 0) {
    free(levels);
    return;
  }
  for (int level = 0; level < w->f->program.levels; level++) {
    mark_level(w, level);
    for (int i = 0; i < w->f->program.nnodes; i++) {
      const mt_fuse_node *const v = node_of(w, i);
      if (v->kind == MT_FUSE_INPUT && w->need[i] && by_element(w, v->index))
        w->held[v->index] = ++levels[v->index] > 1;
    }
  }
  free(levels);
}

/* Where the row's elements begin. */
static void say_offsets(const writer *w) {
  const mt_fuse_variant *const v = w->v;
  const int nout = w->f->program.nout;
  text *const t = w->t;
  say(t, "    long long rest = row, m;\n    (void)rest, (void)m;\n");
  for (int k = 0; k < nout; k++) {
    const char *const s = storage(v->out_dtype[k]);
    say(t, "    %s *q%d = (%s *)a.out[%d];\n", s, k, s, k);
  }
  for (int i = 0; i < w->f->nin; i++) {
    const char *const s = storage(v->in_dtype[i]);
    if (v->mode[i] != MT_FUSE_UNUSED && v->mode[i] != MT_FUSE_HOST)
      say(t, "    const %s *p%d = (const %s *)a.in[%d];\n", s, w->place[i], s,
          w->place[i]);
  }
  for (int d = 0; d < v->ndim; d++) {
    if (d + 1 < v->ndim)
      say(t, "    m = rest %% a.size[%d], rest /= a.size[%d];\n", d, d);
    else
      say(t, "    m = rest;\n");
    for (int k = 0; k < nout; k++) say(t, "    q%d += m * a.out_stride[%d][%d];\n", k, k, d);
    for (int i = 0; i < w->f->nin; i++)
      if (v->mode[i] != MT_FUSE_UNUSED && v->mode[i] != MT_FUSE_HOST)
        say(t, "    p%d += m * a.in_stride[%d][%d];\n", w->place[i], w->place[i], d);
  }
}

static void say_row_inputs(const writer *w) {
  const mt_fuse_variant *const v = w->v;
  for (int i = 0; i < w->f->nin; i++) {
    const int k = w->place[i];
    char at[16];
    if (v->mode[i] == MT_FUSE_HOST)
      say(w->t, "    const T x%d = (T)a.value[%d];\n", k, k);
    if (v->mode[i] == MT_FUSE_ONE) {
      snprintf(at, sizeof at, "*p%d", k);
      say(w->t, "    const T x%d = ", k);
      say_load(w, i, at);
      say(w->t, ";\n");
    }
    if (!w->held[i]) continue;
    snprintf(at, sizeof at, "h%d[j]", k);
    say(w->t, "    pack<%s, V> h%d[%d];\n", storage(v->in_dtype[i]), k, v->items);
    say_loop(w);
    say(w->t, "      ");
    say_piece(w, i, at);
    say(w->t, "    }\n");
  }
}

static void say_rows(const writer *w) {
  const mt_fuse_program *const p = &w->f->program;
  text *const t = w->t;
  choose_held(w);
  say(t, "#define LANES %d\n%s", w->v->lanes, row_folds);
  say(t,
      "extern \"C\" __global__ void __launch_bounds__(%d)\n"
      "    " MT_FUSE_KERNEL "(const __grid_constant__ arguments a) {\n"
      "  constexpr int V = %d;\n"
      "  const int pieces = int(a.length / V);\n"
      "  for (long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y; row < "
      "a.rows;\n       row += (long long)gridDim.x * blockDim.y) {\n",
      w->v->lanes * w->v->blocks, w->v->width);
  say_offsets(w);
  say_row_inputs(w);
  for (int level = 0; level < p->levels; level++) {
    for (int i = 0; i < p->nnodes; i++) {
      const mt_fuse_node *const v = node_of(w, i);
      if (is_full(w, i) || v->level != level) continue;
      if (v->kind == MT_FUSE_LENGTH) say(t, "    const T v%d = (T)a.length;\n", i);
      say_node(w, i, "    ");
    }
    say_level(w, level);
  }
  for (int k = 0; k < p->nout; k++) {
    if (p->output_space[k] == MT_FUSE_FULL) continue;
    say(t, "    if (threadIdx.x == 0) *q%d = %s(", k, store_of(w->v->out_dtype[k]));
    say_value(w, p->output[k]);
    say(t, ");\n");
  }
  say(t, "  }\n}\n");
}

/* ---- all of it ---- */

char *mt_fuse_cuda(const mt_fused *f, const mt_fuse_variant *v) {
  text t = {malloc(16384), 0, 16384};
  writer w = {.t = &t, .f = f, .v = v};
  w.need = malloc((size_t)f->program.nnodes + MT_FUSE_MAX_INPUTS + 1);
  if (!w.need || !t.s) {
    free(w.need);
    free(t.s);
    return NULL;
  }
  w.held = w.need + f->program.nnodes;
  for (int i = 0; i < f->nin; i++) w.place[i] = v->mode[i] ? w.nin++ : -1;
  say_head(&w);
  say_arguments(&w);
  if (v->layout == MT_FUSE_ROWS) {
    say_rows(&w);
  } else {
    say_function(&w);
    if (v->layout == MT_FUSE_PIECES)
      say_pieces(&w);
    else
      say_strided(&w);
  }
  free(w.need);
  return t.s;
}
