// kernels/cuda/matmul.cu -- matmul and linear: which products of matrices they are.
#include "kernels/cuda/blas.cuh"
#include "kernels/cuda/elementwise.cuh"

mt_status cuda_copy(const mt_call *call);
const mt_entry *cuda_elementwise(mt_op op);
extern const mt_entry mt_cuda_sum;

namespace {

// v as (..., rows, columns): a vector is a row on the left, a column on the right.
mt_view as_matrices(const mt_view *v, bool left) {
  mt_view m = *v;
  if (v->ndim > 1) return m;
  m.ndim = 2;
  m.shape[left] = v->shape[0], m.stride[left] = v->stride[0];
  m.shape[!left] = 1, m.stride[!left] = 1;
  return m;
}

// ---- integers: sums wrap ----------------------------------------------------------------

template <class T> struct wrapping { using type = uint32_t; };
template <> struct wrapping<int64_t> { using type = uint64_t; };

template <class T>
__global__ void __launch_bounds__(256) integer_product_kernel(product p) {
  using U = typename wrapping<T>::type;
  const int64_t all = p.m * p.n * p.count, step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += step) {
    const int64_t j = i % p.n, r = i / p.n % p.m, batch = i / (p.m * p.n);
    const T *a = static_cast<const T *>(p.a) + batch * p.next_a + r * p.ars;
    const T *b = static_cast<const T *>(p.b) + batch * p.next_b + j * p.bcs;
    U sum = 0;
    for (int64_t k = 0; k < p.k; k++) sum += U(a[k * p.acs]) * U(b[k * p.brs]);
    static_cast<T *>(p.c)[batch * p.next_c + r * p.crs + j] = T(sum);
  }
}

mt_status run_integers(const mt_call *call, const product &p) {
  return with_int(p.dtype, [&](auto t) {
    using T = typename decltype(t)::type;
    integer_product_kernel<T><<<blocks_for(p.m * p.n * p.count, 256, call->device), 256,
                                0, stream_of(call)>>>(p);
    return launched();
  });
}

mt_status run_one(const mt_call *call, const product &p, void *workspace) {
  return MT_IS_FLOAT(p.dtype) ? run_product(call, p, workspace) : run_integers(call, p);
}

bool takes_any_strides(const product &p) {
  return !MT_IS_FLOAT(p.dtype) || is_small_product(p);
}

// ---- batches ----------------------------------------------------------------------------

// The dims of a batch, innermost first, merged where all three walk them as one.
struct batch {
  int ndim;
  int64_t size[MT_MAX_DIMS], a[MT_MAX_DIMS], b[MT_MAX_DIMS], c[MT_MAX_DIMS];
};

batch batch_of(const mt_view &a, const mt_view &b, int64_t step) {
  batch t{};
  const int n = std::max(a.ndim, b.ndim) - 2;
  for (int d = n - 1; d >= 0; d--) {
    const int da = d + a.ndim - 2 - n, db = d + b.ndim - 2 - n;
    const int64_t na = da < 0 ? 1 : a.shape[da], nb = db < 0 ? 1 : b.shape[db];
    const int64_t size = na == 1 ? nb : na;
    const int64_t sa = na == 1 ? 0 : a.stride[da], sb = nb == 1 ? 0 : b.stride[db];
    const int last = t.ndim - 1;
    if (size == 1) continue;
    if (last >= 0 && sa == t.a[last] * t.size[last] && sb == t.b[last] * t.size[last])
      t.size[last] *= size;
    else
      t.size[t.ndim] = size, t.a[t.ndim] = sa, t.b[t.ndim] = sb, t.c[t.ndim++] = step;
    step *= size;
  }
  return t;
}

// Batches have few dims after merging: the innermost is cuBLAS' own, others are loops.
mt_status run_batch(const mt_call *call, const product &p, const batch &t,
                    void *workspace) {
  int64_t outer = 1;
  const int64_t bytes = dtype_size(p.dtype);
  for (int d = 1; d < t.ndim; d++) outer *= t.size[d];
  for (int64_t i = 0; i < outer; i++) {
    product one = p;
    int64_t rest = i, a = 0, b = 0, c = 0;
    for (int d = 1; d < t.ndim; d++) {
      const int64_t at = rest % t.size[d];
      rest /= t.size[d];
      a += at * t.a[d], b += at * t.b[d], c += at * t.c[d];
    }
    one.a = static_cast<const char *>(p.a) + a * bytes;
    one.b = static_cast<const char *>(p.b) + b * bytes;
    one.c = static_cast<char *>(p.c) + c * bytes;
    if (const mt_status status = run_one(call, one, workspace)) return status;
  }
  return MT_OK;
}

// ---- a call -----------------------------------------------------------------------------

struct job {
  product p;
  batch t; // of no dim: one product
};

// The rows of all matrices of v as those of one: how many, their stride. False: they are
// not evenly spaced.
bool rows_of_all(const mt_view &v, int64_t *rows, int64_t *stride) {
  *rows = 1, *stride = v.stride[v.ndim - 2];
  for (int d = v.ndim - 2; d >= 0; d--) {
    if (v.shape[d] == 1) continue;
    if (*rows == 1)
      *stride = v.stride[d];
    else if (v.stride[d] != *stride * *rows)
      return false;
    *rows *= v.shape[d];
  }
  return true;
}

job job_of(const mt_view &a, const mt_view &b, const mt_view &c) {
  job w{};
  product &p = w.p;
  p.dtype = a.dtype;
  p.m = a.shape[a.ndim - 2], p.k = a.shape[a.ndim - 1], p.n = b.shape[b.ndim - 1];
  p.a = a.data, p.b = b.data, p.c = c.data;
  p.ars = a.stride[a.ndim - 2], p.acs = a.stride[a.ndim - 1];
  p.brs = b.stride[b.ndim - 2], p.bcs = b.stride[b.ndim - 1];
  p.count = 1;
  int64_t rows, stride;
  if (b.ndim == 2 && rows_of_all(a, &rows, &stride))
    p.m = rows, p.ars = stride;
  else
    w.t = batch_of(a, b, p.m * p.n);
  if (w.t.ndim > 0)
    p.count = w.t.size[0], p.next_a = w.t.a[0], p.next_b = w.t.b[0],
    p.next_c = w.t.c[0];
  // the stride of a dim of size 1 says nothing: read it as a row
  if (p.acs != 1 && p.ars != 1 && p.k == 1) p.acs = 1;
  if (p.acs != 1 && p.m == 1) p.ars = 1;
  if (p.bcs != 1 && p.brs != 1 && p.n == 1) p.bcs = 1;
  if (p.bcs != 1 && p.k == 1) p.brs = 1;
  p.crs = p.n;
  return w;
}

// Does cuBLAS take a matrix as it lies? One stride is 1, the other at least as long as a
// row.
bool lies_well(int64_t rows, int64_t columns, int64_t rs, int64_t cs) {
  if (cs == 1 || columns == 1) return rows == 1 || rs >= columns;
  if (rs == 1 || rows == 1) return columns == 1 || cs >= rows;
  return false;
}

// The operands as cuBLAS takes them, where they have to be copied.
struct packed {
  mt_view a, b;
  size_t bytes_a, bytes_b; // 0: it stays as it is
};

mt_view contiguous_like(const mt_view &v) {
  mt_view t = v;
  int64_t step = 1;
  for (int d = v.ndim - 1; d >= 0; d--) t.stride[d] = step, step *= v.shape[d];
  return t;
}

packed packed_of(const mt_view &a, const mt_view &b, const job &w) {
  packed q = {a, b, 0, 0};
  auto bytes = [](const mt_view &v) {
    return size_t((numel(&v) * dtype_size(v.dtype) + 255) / 256 * 256);
  };
  const product &p = w.p;
  if (takes_any_strides(p)) return q;
  if (!lies_well(p.m, p.k, p.ars, p.acs))
    q.a = contiguous_like(a), q.bytes_a = bytes(a);
  if (!lies_well(p.k, p.n, p.brs, p.bcs))
    q.b = contiguous_like(b), q.bytes_b = bytes(b);
  return q;
}

mt_status copy_to(const mt_call *call, const mt_view *from, mt_view *to) {
  const mt_view *const in[1] = {from};
  mt_view *const out[1] = {to};
  mt_call copy = *call;
  copy.nin = copy.nout = 1, copy.in = in, copy.out = out;
  return cuda_copy(&copy);
}

// What follows the sums: fields are cleared once the product has taken care of them.
struct finish {
  const mt_view *bias; // NULL: none
  activation after;
};

// Have p do what it can. cuBLASLt has no bias in float64, and its gelu is another one.
void join(product *p, const finish &f) {
  const bool small = is_small_product(*p);
  if (f.bias && (small || p->dtype != MT_F64)) p->bias = f.bias->data;
  if (small || (f.after == activation::relu && takes_relu(*p))) p->after = f.after;
}

mt_status multiply(const mt_call *call, const mt_view &a, const mt_view &b,
                   const mt_view &c, finish *f) {
  if (numel(&c) == 0) return MT_OK;
  job w = job_of(a, b, c);
  if (w.p.k == 0) {
    CUDA_TRY(cudaMemsetAsync(c.data, 0, size_t(numel(&c) * dtype_size(c.dtype)),
                             stream_of(call)));
    return MT_OK;
  }
  packed q = packed_of(a, b, w);
  if (q.bytes_a || q.bytes_b) {
    char *room = static_cast<char *>(call->scratch) + blas_workspace;
    q.a.data = q.bytes_a ? room : a.data;
    q.b.data = q.bytes_b ? room + q.bytes_a : b.data;
    if (q.bytes_a)
      if (const mt_status s = copy_to(call, &a, &q.a)) return s;
    if (q.bytes_b)
      if (const mt_status s = copy_to(call, &b, &q.b)) return s;
    w = job_of(q.a, q.b, c);
  }
  join(&w.p, *f);
  if (w.p.bias) f->bias = nullptr;
  if (w.p.after == f->after) f->after = activation::none;
  return run_batch(call, w.p, w.t, call->scratch);
}

size_t scratch_for(const mt_call *call, const mt_view &a, const mt_view &b,
                   const mt_view &c, const finish &f) {
  job w = job_of(a, b, c);
  if (numel(&c) == 0 || w.p.k == 0 || takes_any_strides(w.p)) return 0;
  const packed q = packed_of(a, b, w);
  // Products of further dims may lie otherwise in memory: then they have other plans.
  if (q.bytes_a || q.bytes_b || w.t.ndim > 1)
    return blas_workspace + q.bytes_a + q.bytes_b;
  join(&w.p, f);
  return product_workspace(call, w.p);
}

// Two small matrices: an op that is over sooner than the rest of this file.
bool is_small_pair(const mt_call *call, product *p /* [out] */) {
  const mt_view *a = call->in[0], *b = call->in[1], *c = call->out[0];
  if (a->ndim != 2 || b->ndim != 2 || !MT_IS_FLOAT(a->dtype)) return false;
  *p = {};
  p->dtype = a->dtype, p->count = 1;
  p->m = a->shape[0], p->k = a->shape[1], p->n = b->shape[1];
  p->a = a->data, p->ars = a->stride[0], p->acs = a->stride[1];
  p->b = b->data, p->brs = b->stride[0], p->bcs = b->stride[1];
  p->c = c->data, p->crs = p->n;
  return p->m > 0 && p->n > 0 && p->k > 0 && is_small_product(*p);
}

mt_status run_matmul(const mt_call *call) {
  finish f = {};
  product p;
  if (is_small_pair(call, &p)) return run_small_product(call, p);
  return multiply(call, as_matrices(call->in[0], true), as_matrices(call->in[1], false),
                  *call->out[0], &f);
}

size_t matmul_scratch(const mt_call *call) {
  product p;
  if (is_small_pair(call, &p)) return 0;
  return scratch_for(call, as_matrices(call->in[0], true),
                     as_matrices(call->in[1], false), *call->out[0], {});
}

// ---- linear -----------------------------------------------------------------------------

// w (out, in) seen as (in, out).
mt_view turned(const mt_view *w) {
  mt_view t = *w;
  std::swap(t.shape[0], t.shape[1]);
  std::swap(t.stride[0], t.stride[1]);
  return t;
}

// y = op(y, x) by the elementwise kernel; x: NULL for a unary op.
mt_status apply(const mt_call *call, mt_op op, mt_view *y, const mt_view *x) {
  const mt_view *const in[2] = {y, x};
  mt_view *const out[1] = {y};
  mt_call next = *call;
  next.op = op, next.nin = x ? 2 : 1, next.nout = 1, next.in = in, next.out = out;
  next.attr = nullptr;
  return cuda_elementwise(op)->run(&next);
}

mt_status add_bias(const mt_call *call, mt_view *y, const mt_view *b) {
  mt_view row = *y;
  for (int d = 0; d < y->ndim; d++) row.stride[d] = d == y->ndim - 1 ? b->stride[0] : 0;
  row.data = b->data;
  return apply(call, MT_OP_add, y, &row);
}

finish finish_of(const mt_call *call) {
  return {call->in[2], activation(call->attr[0].i[0])};
}

mt_status run_linear(const mt_call *call) {
  mt_view *y = call->out[0];
  finish f = finish_of(call);
  mt_status status =
      multiply(call, as_matrices(call->in[0], true), turned(call->in[1]), *y, &f);
  if (numel(y) == 0) return status;
  if (status == MT_OK && f.bias) status = add_bias(call, y, f.bias);
  if (status == MT_OK && f.after != activation::none)
    status =
        apply(call, f.after == activation::relu ? MT_OP_relu : MT_OP_gelu, y, nullptr);
  return status;
}

size_t linear_scratch(const mt_call *call) {
  return scratch_for(call, as_matrices(call->in[0], true), turned(call->in[1]),
                     *call->out[0], finish_of(call));
}

// ---- gradients of linear to its parameters ----------------------------------------------

// dw = dy^T x, db = the sums of dy's columns, over all rows of x and dy: both contiguous.
product weight_product(const mt_call *call) {
  const mt_view *x = call->in[0], *dy = call->in[1];
  product p{};
  p.dtype = x->dtype;
  p.m = dy->shape[dy->ndim - 1], p.n = x->shape[x->ndim - 1], p.k = 1, p.count = 1;
  for (int d = 0; d < x->ndim - 1; d++) p.k *= x->shape[d];
  p.a = dy->data, p.b = x->data, p.c = call->out[0]->data;
  p.ars = 1, p.acs = p.m, p.brs = p.n, p.bcs = 1, p.crs = p.n;
  if (call->out[1] && is_small_product(p)) p.row_sums = call->out[1]->data;
  return p;
}

struct column_sums {
  mt_view dy;
  mt_attr attr[2]; // dim 0, keepdim
};

// The call of sum that adds up dy's columns, where the product doesn't.
mt_call sum_call(const mt_call *call, const product &p, column_sums *s,
                 const mt_view **in) {
  s->dy = *call->in[1];
  s->dy.ndim = 2, s->dy.shape[0] = p.k, s->dy.shape[1] = p.m;
  s->dy.stride[0] = p.m, s->dy.stride[1] = 1;
  s->attr[0] = {}, s->attr[1] = {};
  s->attr[0].n = s->attr[1].n = 1;
  *in = &s->dy;
  mt_call sum = *call;
  sum.op = MT_OP_sum, sum.nin = sum.nout = 1, sum.in = in, sum.out = call->out + 1;
  sum.attr = s->attr;
  return sum;
}

mt_status run_linear_backward_weight(const mt_call *call) {
  const product p = weight_product(call);
  mt_view *dw = call->out[0], *db = call->out[1];
  if (p.m == 0) return MT_OK;
  if (p.n > 0 && p.k == 0)
    CUDA_TRY(cudaMemsetAsync(dw->data, 0, size_t(numel(dw) * dtype_size(dw->dtype)),
                             stream_of(call)));
  if (p.n > 0 && p.k > 0)
    if (const mt_status s = run_product(call, p, call->scratch)) return s;
  if (!db || (p.row_sums && p.n > 0 && p.k > 0)) return MT_OK;
  column_sums room;
  const mt_view *in;
  const mt_call sum = sum_call(call, p, &room, &in);
  return mt_cuda_sum.run(&sum);
}

// The product and the sum come one after the other and share it.
size_t linear_backward_weight_scratch(const mt_call *call) {
  const product p = weight_product(call);
  const size_t bytes = p.m > 0 && p.n > 0 && p.k > 0 ? product_workspace(call, p) : 0;
  if (!call->out[1] || p.m == 0) return bytes;
  column_sums room;
  const mt_view *in;
  const mt_call sum = sum_call(call, p, &room, &in);
  return std::max(bytes, mt_cuda_sum.scratch(&sum));
}

} // namespace

CUDA_ENTRY(matmul) = {run_matmul, matmul_scratch, MT_FLOAT_MASK | MT_INT_MASK, 0};
CUDA_ENTRY(linear) = {run_linear, linear_scratch, MT_FLOAT_MASK, 1u << 2};
CUDA_ENTRY(_linear_backward_weight) = {
    run_linear_backward_weight, linear_backward_weight_scratch, MT_FLOAT_MASK, 3};
