// kernels/cuda/matmul.cu -- matmul and linear: which products of matrices they are.
#include "kernels/cuda/blas.cuh"
#include "kernels/cuda/elementwise.cuh"

mt_status cuda_copy(const mt_call *call);
const mt_entry *cuda_elementwise(mt_op op);

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

// Does cuBLAS take these matrices as they lie? One stride is 1, the other at least as long
// as a row.
bool lies_well(const mt_view &v) {
  const int64_t rows = v.shape[v.ndim - 2], columns = v.shape[v.ndim - 1];
  const int64_t rs = v.stride[v.ndim - 2], cs = v.stride[v.ndim - 1];
  if (cs == 1 || columns == 1) return rows == 1 || rs >= columns;
  if (rs == 1 || rows == 1) return columns == 1 || cs >= rows;
  return false;
}

size_t packed_bytes(const mt_view &v) {
  if (lies_well(v)) return 0;
  const size_t bytes = size_t(numel(&v) * dtype_size(v.dtype));
  return (bytes + 255) / 256 * 256;
}

// A contiguous copy of v in scratch, if it has to be one.
mt_status pack_operand(const mt_call *call, mt_view *v, char **scratch) {
  const size_t bytes = packed_bytes(*v);
  if (bytes == 0) return MT_OK;
  mt_view packed = *v;
  packed.data = *scratch;
  *scratch += bytes;
  int64_t step = 1;
  for (int d = v->ndim - 1; d >= 0; d--) packed.stride[d] = step, step *= v->shape[d];
  const mt_view *const in[1] = {v};
  mt_view *const out[1] = {&packed};
  mt_call copy = *call;
  copy.nin = copy.nout = 1, copy.in = in, copy.out = out;
  const mt_status status = cuda_copy(&copy);
  *v = packed;
  return status;
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
mt_status run_batch(const mt_call *call, product p, const batch &t, void *workspace) {
  int64_t outer = 1;
  const int64_t bytes = dtype_size(p.dtype);
  for (int d = 1; d < t.ndim; d++) outer *= t.size[d];
  if (t.ndim > 0)
    p.count = t.size[0], p.next_a = t.a[0], p.next_b = t.b[0], p.next_c = t.c[0];
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

bool is_one_dim(const mt_view &v, int last) {
  for (int i = 0; i < last; i++)
    if (v.shape[i] != 1 && v.stride[i] != v.stride[i + 1] * v.shape[i + 1])
      return false;
  return true;
}

mt_status multiply(const mt_call *call, mt_view a, mt_view b, const mt_view *c,
                   epilogue after, const void *bias) {
  char *scratch = static_cast<char *>(call->scratch);
  void *workspace = scratch;
  if (numel(c) == 0) return MT_OK;
  scratch += MT_IS_FLOAT(a.dtype) ? blas_workspace : 0;
  if (const mt_status status = pack_operand(call, &a, &scratch)) return status;
  if (const mt_status status = pack_operand(call, &b, &scratch)) return status;
  product p{};
  p.dtype = a.dtype;
  p.m = a.shape[a.ndim - 2], p.k = a.shape[a.ndim - 1], p.n = b.shape[b.ndim - 1];
  p.a = a.data, p.b = b.data, p.c = c->data;
  p.ars = a.stride[a.ndim - 2], p.acs = a.stride[a.ndim - 1];
  p.brs = b.stride[b.ndim - 2], p.bcs = b.stride[b.ndim - 1];
  // the stride of a dim of size 1 says nothing: read it as a row
  if (p.acs != 1 && p.ars != 1 && p.k == 1) p.acs = 1;
  if (p.acs != 1 && p.m == 1) p.ars = 1;
  if (p.bcs != 1 && p.brs != 1 && p.n == 1) p.bcs = 1;
  if (p.bcs != 1 && p.k == 1) p.brs = 1;
  p.crs = p.n, p.count = 1;
  p.after = after, p.bias = bias;
  if (p.k == 0) {
    CUDA_TRY(cudaMemsetAsync(c->data, 0, size_t(numel(c) * dtype_size(c->dtype)),
                             stream_of(call)));
    return MT_OK;
  }
  if (b.ndim == 2 && is_one_dim(a, a.ndim - 2)) { // all rows of a in one product
    for (int i = 0; i < a.ndim - 2; i++) p.m *= a.shape[i];
    return run_one(call, p, workspace);
  }
  return run_batch(call, p, batch_of(a, b, p.m * p.n), workspace);
}

size_t scratch_for(const mt_view &a, const mt_view &b) {
  return (MT_IS_FLOAT(a.dtype) ? blas_workspace : 0) + packed_bytes(a) +
         packed_bytes(b);
}

mt_status run_matmul(const mt_call *call) {
  return multiply(call, as_matrices(call->in[0], true), as_matrices(call->in[1], false),
                  call->out[0], epilogue::none, nullptr);
}

size_t matmul_scratch(const mt_call *call) {
  return scratch_for(as_matrices(call->in[0], true), as_matrices(call->in[1], false));
}

// w (out, in) seen as (in, out).
mt_view turned(const mt_view *w) {
  mt_view t = *w;
  std::swap(t.shape[0], t.shape[1]);
  std::swap(t.stride[0], t.stride[1]);
  return t;
}

// y += bias by the elementwise kernel.
mt_status add_bias(const mt_call *call, mt_view *y, const mt_view *b) {
  mt_view row = *y;
  for (int d = 0; d < y->ndim; d++) row.stride[d] = d == y->ndim - 1 ? b->stride[0] : 0;
  row.data = b->data;
  const mt_view *const in[2] = {y, &row};
  mt_view *const out[1] = {y};
  mt_call add = *call;
  add.op = MT_OP_add, add.nin = 2, add.nout = 1, add.in = in, add.out = out;
  return cuda_elementwise(MT_OP_add)->run(&add);
}

// The bias joins in cuBLAS' epilogue, but for float64, which has none.
mt_status run_linear(const mt_call *call) {
  const mt_view *x = call->in[0], *b = call->in[2];
  const bool fused = b && x->dtype != MT_F64 && x->shape[x->ndim - 1] > 0;
  const mt_status status =
      multiply(call, as_matrices(x, true), turned(call->in[1]), call->out[0],
               fused ? epilogue::bias : epilogue::none, fused ? b->data : nullptr);
  if (status != MT_OK || !b || fused) return status;
  return numel(call->out[0]) > 0 ? add_bias(call, call->out[0], b) : MT_OK;
}

size_t linear_scratch(const mt_call *call) {
  return scratch_for(as_matrices(call->in[0], true), turned(call->in[1]));
}

} // namespace

CUDA_ENTRY(matmul) = {run_matmul, matmul_scratch, MT_FLOAT_MASK | MT_INT_MASK, 0};
CUDA_ENTRY(linear) = {run_linear, linear_scratch, MT_FLOAT_MASK, 1u << 2};
