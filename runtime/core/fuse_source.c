/* runtime/core/fuse_source.c -- the CUDA C++ of fused kernels. Formulas are those of
** ops.def, and their words those of kernels/words.h, whose text comes along. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/core/fuse_writer.h"

/* ---- text ---- */

void mt_fuse_say(mt_fuse_text *t, const char *format, ...) {
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

/* ---- elements ---- */

const char *mt_fuse_storage(int dtype) {
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

const char *mt_fuse_store_of(int dtype) {
  return dtype == MT_F16    ? "store_f16"
         : dtype == MT_BF16 ? "store_bf16"
         : dtype == MT_F64  ? "(double)"
         : dtype == MT_F32  ? "(float)"
                            : "(unsigned char)";
}

static void say_number(mt_fuse_text *t, double x) {
  if (x != x)
    mt_fuse_say(t, "((T)NAN)");
  else if (isinf(x))
    mt_fuse_say(t, "(%s(T)INFINITY)", x < 0 ? "-" : "");
  else
    mt_fuse_say(t, "((T)%.17g)", x);
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

static bool is_wanted(const mt_fuse_writer *w, const char *word, size_t n) {
  for (int i = 0; i < w->f->program.nnodes; i++) {
    const mt_fuse_node *const v = mt_fuse_node_of(w, i);
    if (v->kind == MT_FUSE_OP && names_word(mt_op_formula((mt_op)v->op, 0), word, n))
      return true;
  }
  return false;
}

/* Does the line of words.h begin a word that nothing here needs? Then the compiler is
** spared it: half of its time is reading. */
static bool is_spare(const mt_fuse_writer *w, const char *line, size_t n) {
  static const char *const starts[] = {"  MT_WORD_LIBM(T, s, ", "  MT_WORD_FN T mt_",
                                       "  MT_WORD_FN int mt_", "  MT_WORD_CALL T mt_"};
  for (size_t k = 0; k < sizeof starts / sizeof *starts; k++) {
    const size_t length = strlen(starts[k]);
    if (n <= length || strncmp(line, starts[k], length) != 0) continue;
    const char *const word = line + length;
    const char *const end = strstr(word, k == 0 ? "," : "_##s(");
    return *word != '#' && end && end < line + n &&
           !is_wanted(w, word, (size_t)(end - word));
  }
  return false;
}

/* Formulas' 1 + erf(x) by half the instructions, as other kernels have it. */
static void say_erf(const mt_fuse_writer *w) {
  const char *const from = strstr(mt_formulas_text, "// 1 + erf(x)");
  const char *const to = from ? strstr(from, "__device__ inline double erf_of") : NULL;
  if (w->v->compute == MT_F64 || !to || !is_wanted(w, "erf", 3)) return;
  mt_fuse_say(w->t, "#undef erf\n%.*s#define erf(x) erf_of(x)\n", (int)(to - from),
              from);
}

static bool begins(const char *line, const char *start) {
  return strncmp(line, start, strlen(start)) == 0;
}

/* Does the line end within a function's body? */
static bool opens(const char *line, size_t n) {
  int depth = 0;
  for (size_t i = 0; i < n; i++) depth += (line[i] == '{') - (line[i] == '}');
  return depth > 0;
}

/* The words that the program's formulas name, of T only. */
static void say_words(const mt_fuse_writer *w) {
  static const char *const special[] = {"lgamma", "digamma", "polygamma",
                                        "erfinv", "i0",      "i0e",
                                        "i1",     "i1e",     "nextafter"};
  const char *const other =
      w->v->compute == MT_F64 ? "MT_WORDS_FLOAT(float" : "MT_WORDS_FLOAT(double";
  bool all = false; /* the special functions use any word of float64 */
  for (size_t i = 0; i < sizeof special / sizeof *special; i++)
    all = all || is_wanted(w, special[i], strlen(special[i]));
  bool integers = false, skipping = false; /* within what is left out */
  for (const char *line = mt_words_text; *line;) {
    const size_t n = strcspn(line, "\n") + 1;
    if (begins(line, "#define MT_WORDS_INT")) integers = true;
    const bool spare = !all && (is_spare(w, line, n) || begins(line, other));
    if (begins(line, "#include \"kernels/special.h\"") && all) {
      mt_fuse_say(w->t, "%s", mt_special_text);
    } else if (!integers && !skipping && !spare && !begins(line, "MT_WORDS_INT(") &&
               !begins(line, "#include")) {
      mt_fuse_say(w->t, "%.*s", (int)n, line);
    }
    if (n > 1 && line[n - 2] != '\\') integers = false;
    if (skipping && begins(line, "  }"))
      skipping = false;
    else if (spare && opens(line, n))
      skipping = true;
    line += n;
  }
}

static void say_op(const mt_fuse_writer *w, const mt_opinfo *op) {
  static const char *const names[] = {"a", "b", "c"};
  const bool boolean = op->kind == MT_KIND_PREDICATE || op->kind == MT_KIND_COMPARE;
  mt_fuse_say(w->t, "static __device__ __forceinline__ %s op_%s(",
              boolean ? "int" : "T", op->name);
  for (int i = 0; i < op->nin; i++)
    mt_fuse_say(w->t, "%sT %s", i > 0 ? ", " : "", op->nin == 1 ? "x" : names[i]);
  for (int slot = 0; slot < op->nattr; slot++) {
    for (int k = 0; k < op->nparams; k++) {
      const mt_param *const p = &op->param[k];
      if (p->type > MT_PARAM_LIST && p->slot == slot)
        mt_fuse_say(w->t, ", T %s", p->name);
    }
  }
  mt_fuse_say(w->t, ") { return %s; }\n", op->formula[0]);
}

static void say_ops(const mt_fuse_writer *w) {
  bool said[MT_OP_COUNT] = {false};
  for (int i = 0; i < w->f->program.nnodes; i++) {
    const mt_fuse_node *const v = mt_fuse_node_of(w, i);
    if (v->kind != MT_FUSE_OP || said[v->op]) continue;
    said[v->op] = true;
    say_op(w, mt_op_info((mt_op)v->op));
  }
}

static void say_head(const mt_fuse_writer *w) {
  const bool f64 = w->v->compute == MT_F64;
  mt_fuse_say(w->t, "#define INFINITY __int_as_float(0x7f800000)\n"
                    "#define NAN __int_as_float(0x7fffffff)\n"
                    "#define MT_FORMULAS\n");
  say_words(w);
  say_erf(w);
  mt_fuse_say(w->t, "#define T %s\n#define SUFFIX %s\n", f64 ? "double" : "float",
              f64 ? "f64" : "f32");
  bool halves = false;
  for (int i = 0; i < w->f->nin; i++)
    halves = halves || (w->v->mode[i] && (MT_HALF_MASK >> w->v->in_dtype[i] & 1u));
  for (int k = 0; k < w->f->program.nout; k++)
    halves = halves || (MT_HALF_MASK >> w->v->out_dtype[k] & 1u);
  if (halves) mt_fuse_say(w->t, "%s", half_loads);
  mt_fuse_say(
      w->t,
      "template <class S, int V> struct alignas(sizeof(S) * V) pack { S at[V]; };\n");
  say_ops(w);
}

/* ---- nodes ---- */

void mt_fuse_say_value(const mt_fuse_writer *w, int i) {
  const mt_fuse_node *const v = mt_fuse_node_of(w, i);
  if (v->kind == MT_FUSE_NUMBER)
    say_number(w->t, v->number[0]);
  else if (v->kind == MT_FUSE_INPUT)
    mt_fuse_say(w->t, "x%d", w->place[v->index]);
  else
    mt_fuse_say(w->t, "v%d", i);
}

/* "const T v7 = op_mul(v5, x0);" */
void mt_fuse_say_node(const mt_fuse_writer *w, int i, const char *indent) {
  const mt_fuse_node *const v = mt_fuse_node_of(w, i);
  if (v->kind != MT_FUSE_OP && v->kind != MT_FUSE_WHERE) return;
  mt_fuse_say(w->t, "%sconst %s v%d = ", indent, v->boolean ? "int" : "T", i);
  if (v->kind == MT_FUSE_WHERE) {
    mt_fuse_say_value(w, v->arg[0]);
    for (int a = 1; a < 3; a++) {
      mt_fuse_say(w->t, a == 1 ? " ? (%s)" : " : (%s)", v->boolean ? "int" : "T");
      mt_fuse_say_value(w, v->arg[a]);
    }
    mt_fuse_say(w->t, ";\n");
    return;
  }
  const mt_opinfo *const op = mt_op_info((mt_op)v->op);
  mt_fuse_say(w->t, "op_%s(", op->name);
  for (int a = 0; a < v->nargs; a++) {
    if (a > 0) mt_fuse_say(w->t, ", ");
    mt_fuse_say_value(w, v->arg[a]);
  }
  for (int k = 0; k < op->nattr; k++) {
    mt_fuse_say(w->t, ", ");
    say_number(w->t, v->number[k]);
  }
  mt_fuse_say(w->t, ");\n");
}

void mt_fuse_say_load(const mt_fuse_writer *w, int k, const char *what) {
  mt_fuse_say(w->t, "%s(%s)", load_of(w->v->in_dtype[k]), what);
}

/* ---- the arguments ---- */

static void say_arguments(const mt_fuse_writer *w) {
  const int nout = w->f->program.nout, nin = w->nin, nd = w->v->ndim;
  mt_fuse_say(w->t,
              "struct arguments {\n  char *out[%d], *in[%d];\n  double value[%d];\n",
              nout, nin + 1, nin + 1);
  if (w->v->layout == MT_FUSE_PIECES) {
    mt_fuse_say(w->t,
                "  long long out_row[%d], in_row[%d];\n"
                "  long long rows, whole, left;\n",
                nout, nin + 1);
  } else {
    mt_fuse_say(w->t, "  long long length, rows, size[%d], out_stride[%d][%d];\n",
                nd + 1, nout, nd + 1);
    mt_fuse_say(w->t, "  long long in_stride[%d][%d], in_step[%d];\n", nin + 1, nd + 1,
                nin + 1);
  }
  mt_fuse_say(w->t, "};\n");
}

/* ---- elementwise ---- */

/* void f(x0, x1, y0, ...): one element. */
static void say_function(const mt_fuse_writer *w) {
  const mt_fuse_program *const p = &w->f->program;
  const char *separator = "";
  mt_fuse_say(w->t, "static __device__ __forceinline__ void f(");
  for (int k = 0; k < w->nin; k++) {
    mt_fuse_say(w->t, "%sT x%d", separator, k);
    separator = ", ";
  }
  for (int k = 0; k < p->nout; k++) {
    mt_fuse_say(w->t, "%s%s &y%d", separator, mt_fuse_storage(w->v->out_dtype[k]), k);
    separator = ", ";
  }
  mt_fuse_say(w->t, ") {\n");
  for (int i = 0; i < p->nnodes; i++) mt_fuse_say_node(w, i, "  ");
  for (int k = 0; k < p->nout; k++) {
    mt_fuse_say(w->t, "  y%d = %s(", k, mt_fuse_store_of(w->v->out_dtype[k]));
    mt_fuse_say_value(w, p->output[k]);
    mt_fuse_say(w->t, ");\n");
  }
  mt_fuse_say(w->t, "}\n");
}

static void say_pieces(const mt_fuse_writer *w) {
  const mt_fuse_variant *const v = w->v;
  const int nout = w->f->program.nout;
  mt_fuse_text *const t = w->t;
  mt_fuse_say(
      t,
      "extern \"C\" __global__ void __launch_bounds__(256)\n"
      "    " MT_FUSE_KERNEL "(const __grid_constant__ arguments a) {\n"
      "  constexpr int V = %d;\n"
      "  const unsigned c = blockIdx.x * blockDim.x + threadIdx.x;\n"
      "  const long long r =\n"
      "      (blockIdx.z * gridDim.y + blockIdx.y) * blockDim.y + threadIdx.y;\n"
      "  if (r >= a.rows || c > a.whole) return;\n"
      "  const bool whole = c < a.whole;\n",
      v->width);
  for (int i = 0; i < w->f->nin; i++) {
    const int k = w->place[i];
    const char *const s = mt_fuse_storage(v->in_dtype[i]);
    char at[120];
    if (v->mode[i] == MT_FUSE_UNUSED) continue;
    if (v->mode[i] == MT_FUSE_HOST) {
      mt_fuse_say(t, "  const T x%d = (T)a.value[%d];\n", k, k);
    } else if (v->mode[i] == MT_FUSE_ONE) {
      snprintf(at, sizeof at, "*(const %s *)(a.in[%d] + r * a.in_row[%d])", s, k, k);
      mt_fuse_say(t, "  const T x%d = ", k);
      mt_fuse_say_load(w, i, at);
      mt_fuse_say(t, ";\n");
    } else {
      mt_fuse_say(t,
                  "  const %s *p%d = (const %s *)(a.in[%d] + r * a.in_row[%d]) + "
                  "(long long)c * V;\n",
                  s, k, s, k, k);
    }
  }
  for (int k = 0; k < nout; k++) {
    const char *const s = mt_fuse_storage(v->out_dtype[k]);
    mt_fuse_say(
        t, "  %s *q%d = (%s *)(a.out[%d] + r * a.out_row[%d]) + (long long)c * V;\n", s,
        k, s, k, k);
  }
  /* the last piece may be a part of one: its elements come one by one */
  for (int i = 0; i < w->f->nin; i++) {
    const char *const s = mt_fuse_storage(v->in_dtype[i]);
    const int k = w->place[i];
    if (v->mode[i] == MT_FUSE_BESIDE)
      mt_fuse_say(t,
                  "  pack<%s, V> h%d = {};\n"
                  "  if (whole) h%d = *(const pack<%s, V> *)p%d;\n"
                  "  else for (int i = 0; i < V; i++) if (i < a.left) h%d.at[i] = "
                  "p%d[i];\n",
                  s, k, k, s, k, k, k);
  }
  for (int k = 0; k < nout; k++)
    mt_fuse_say(t, "  pack<%s, V> o%d;\n", mt_fuse_storage(v->out_dtype[k]), k);
  mt_fuse_say(t, "#pragma unroll\n  for (int i = 0; i < V; i++)\n    f(");
  for (int i = 0, n = 0; i < w->f->nin; i++) {
    char at[32];
    if (v->mode[i] == MT_FUSE_UNUSED) continue;
    if (n++ > 0) mt_fuse_say(t, ", ");
    if (v->mode[i] == MT_FUSE_BESIDE) {
      snprintf(at, sizeof at, "h%d.at[i]", w->place[i]);
      mt_fuse_say_load(w, i, at);
    } else {
      mt_fuse_say(t, "x%d", w->place[i]);
    }
  }
  for (int k = 0; k < nout; k++)
    mt_fuse_say(t, "%so%d.at[i]", w->nin + k > 0 ? ", " : "", k);
  mt_fuse_say(t, ");\n");
  for (int k = 0; k < nout; k++)
    mt_fuse_say(t,
                "  if (whole) *(pack<%s, V> *)q%d = o%d;\n"
                "  else for (int i = 0; i < V; i++) if (i < a.left) q%d[i] = "
                "o%d.at[i];\n",
                mt_fuse_storage(v->out_dtype[k]), k, k, k, k);
  mt_fuse_say(t, "}\n");
}

static void say_strided(const mt_fuse_writer *w) {
  const mt_fuse_variant *const v = w->v;
  const int nout = w->f->program.nout;
  mt_fuse_text *const t = w->t;
  const char *const index = v->wide ? "long long" : "unsigned";
  mt_fuse_say(t,
              "extern \"C\" __global__ void __launch_bounds__(256)\n"
              "    " MT_FUSE_KERNEL "(const __grid_constant__ arguments a) {\n"
              "  const %s step = (%s)gridDim.x * blockDim.x;\n"
              "  for (%s i = (%s)blockIdx.x * blockDim.x + threadIdx.x; i < a.length;\n"
              "       i += step) {\n"
              "    %s rest = i;\n    long long ",
              index, index, index, index, index);
  for (int k = 0; k < nout; k++) mt_fuse_say(t, "%sto%d = 0", k > 0 ? ", " : "", k);
  for (int k = 0; k < w->nin; k++) mt_fuse_say(t, ", at%d = 0", k);
  mt_fuse_say(t, ";\n");
  for (int d = 0; d < v->ndim; d++) {
    mt_fuse_say(
        t,
        "    { const %s q = rest / (%s)a.size[%d];\n"
        "      const long long m = rest - q * (%s)a.size[%d];\n      rest = q;\n",
        index, index, d, index, d);
    for (int k = 0; k < nout; k++)
      mt_fuse_say(t, "      to%d += m * a.out_stride[%d][%d];\n", k, k, d);
    for (int k = 0; k < w->nin; k++)
      mt_fuse_say(t, "      at%d += m * a.in_stride[%d][%d];\n", k, k, d);
    mt_fuse_say(t, "    }\n");
  }
  mt_fuse_say(t, "    f(");
  for (int i = 0, n = 0; i < w->f->nin; i++) {
    const int k = w->place[i];
    char at[80];
    if (v->mode[i] == MT_FUSE_UNUSED) continue;
    if (n++ > 0) mt_fuse_say(t, ", ");
    snprintf(at, sizeof at, "((const %s *)a.in[%d])[at%d]",
             mt_fuse_storage(v->in_dtype[i]), k, k);
    if (v->mode[i] == MT_FUSE_HOST)
      mt_fuse_say(t, "(T)a.value[%d]", k);
    else
      mt_fuse_say_load(w, i, at);
  }
  for (int k = 0; k < nout; k++)
    mt_fuse_say(t, "%s((%s *)a.out[%d])[to%d]", w->nin + k > 0 ? ", " : "",
                mt_fuse_storage(v->out_dtype[k]), k, k);
  mt_fuse_say(t, ");\n  }\n}\n");
}

/* ---- all of it ---- */

char *mt_fuse_cuda(const mt_fused *f, const mt_fuse_variant *v) {
  mt_fuse_text t = {malloc(16384), 0, 16384};
  mt_fuse_writer w = {.t = &t, .f = f, .v = v};
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
    mt_fuse_say_rows(&w);
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
