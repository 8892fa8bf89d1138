// kernels/cuda/running.cu -- running products, extremes, logarithms of sums, and linear
// recurrences along a dim: each is a scan with an associative operator.
#include <cub/block/block_scan.cuh>
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/space.cuh"

namespace {

// What is read and written: y, index, x, a (NULL where there is none).
struct running {
  char *y;
  int64_t *index;
  const char *x, *a;
  mt_dtype dtype;
  int64_t length, step[4]; // of the dim; elements, negative in reverse
  int64_t per_split;       // blocks share a line: so many elements each
  bool least;
  bool pieces; // float32 whose lines are whole pieces of 16 bytes, y and index too
  space<4> s;  // without the dim
};

__device__ inline double load_float(const void *p, int64_t i, mt_dtype d) {
  if (d == MT_F64) return static_cast<const double *>(p)[i];
  return load_at<float, float_kind>(p, i, d);
}
__device__ inline int64_t load_int(const void *p, int64_t i, mt_dtype d) {
  if (d == MT_I64) return static_cast<const int64_t *>(p)[i];
  return load_at<int, int_kind>(p, i, d == MT_BOOL ? MT_U8 : d);
}
__device__ inline void store_float(void *p, int64_t i, double x, mt_dtype d) {
  if (d == MT_F64)
    static_cast<double *>(p)[i] = x;
  else
    store_at<float_kind, float>(p, i, float(x), d);
}

// An operator: a state for each element, how two neighbouring ones join (a comes first),
// and what the joined state of all up to an element gives there.

struct float_product {
  static constexpr int items = 4;
  static constexpr bool in_pieces = false;
  using state = double;
  static __device__ state none() { return 1; }
  static __device__ state load(const running &r, const int64_t *o, int64_t i) {
    return load_float(r.x, o[2] + i * r.step[2], r.dtype);
  }
  static __device__ void store(const running &r, const int64_t *o, int64_t i, state s) {
    store_float(r.y, o[0] + i * r.step[0], s, r.dtype);
  }
  __device__ state operator()(state a, state b) const { return a * b; }
};

struct int_product { // the results are int64
  static constexpr int items = 4;
  static constexpr bool in_pieces = false;
  using state = int64_t;
  static __device__ state none() { return 1; }
  static __device__ state load(const running &r, const int64_t *o, int64_t i) {
    return load_int(r.x, o[2] + i * r.step[2], r.dtype);
  }
  static __device__ void store(const running &r, const int64_t *o, int64_t i, state s) {
    reinterpret_cast<int64_t *>(r.y)[o[0] + i * r.step[0]] = s;
  }
  __device__ state operator()(state a, state b) const {
    return int64_t(uint64_t(a) * uint64_t(b));
  }
};

// The last of equal ones; NaN gives way to another NaN alone. at: from 1; 0: none yet.
// T: double, int64_t, or float for floats of four bytes and less; N counts places.
template <class T, class N> struct extreme_state {
  T value;
  N at;
};
template <class T, class N> struct extreme {
  using state = extreme_state<T, N>;
  static constexpr bool in_pieces = std::is_same<T, float>::value;
  static constexpr int items = in_pieces ? 8 : 4;
  // Four neighbours at once.
  static __device__ void load_piece(const running &r, const int64_t *o, int64_t i,
                                    state *s) {
    const float4 v = *reinterpret_cast<const float4 *>(
        reinterpret_cast<const float *>(r.x) + o[2] + i);
    const float at[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int j = 0; j < 4; j++) s[j] = {T(r.least ? -at[j] : at[j]), N(i + j + 1)};
  }
  static __device__ void store_piece(const running &r, const int64_t *o, int64_t i,
                                     const state *s) {
    if (r.y) {
      const float sign = r.least ? -1.0f : 1.0f;
      *reinterpret_cast<float4 *>(reinterpret_cast<float *>(r.y) + o[0] + i) = {
          float(s[0].value) * sign, float(s[1].value) * sign, float(s[2].value) * sign,
          float(s[3].value) * sign};
    }
    if (r.index) {
      longlong2 *to = reinterpret_cast<longlong2 *>(r.index + o[1] + i);
      to[0] = {int64_t(s[0].at), int64_t(s[1].at)};
      to[1] = {int64_t(s[2].at), int64_t(s[3].at)};
    }
  }
  static __device__ state none() { return {T(0), 0}; }
  static __device__ state load(const running &r, const int64_t *o, int64_t i) {
    const int64_t from = o[2] + i * r.step[2];
    if constexpr (std::is_same<T, float>::value) {
      const float v = load_at<float, float_kind>(r.x, from, r.dtype);
      return {r.least ? -v : v, N(i + 1)};
    } else if constexpr (std::is_same<T, double>::value) {
      const double v = load_float(r.x, from, r.dtype);
      return {r.least ? -v : v, N(i + 1)};
    } else {
      const int64_t v = load_int(r.x, from, r.dtype);
      return {r.least ? ~v : v, N(i + 1)};
    }
  }
  static __device__ void store(const running &r, const int64_t *o, int64_t i, state s) {
    if (r.index) r.index[o[1] + i * r.step[1]] = int64_t(s.at);
    if (!r.y) return;
    const int64_t to = o[0] + i * r.step[0];
    if constexpr (std::is_same<T, float>::value)
      store_at<float_kind, float>(r.y, to, r.least ? -s.value : s.value, r.dtype);
    else if constexpr (std::is_same<T, double>::value)
      store_float(r.y, to, r.least ? -s.value : s.value, r.dtype);
    else if (r.dtype == MT_I64)
      reinterpret_cast<int64_t *>(r.y)[to] = r.least ? ~s.value : s.value;
    else
      store_at<int_kind, int>(r.y, to, int(r.least ? ~s.value : s.value),
                              r.dtype == MT_BOOL ? MT_U8 : r.dtype);
  }
  __device__ state operator()(const state &a, const state &b) const {
    if (a.at == 0) return b;
    const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
    return b.at != 0 && (nan_b || (!nan_a && b.value >= a.value)) ? b : a;
  }
};

// The largest, and the sum of exp(x - largest); infinities stay themselves.
struct sum_state {
  double largest, sum;
};
struct log_sum {
  static constexpr int items = 4;
  static constexpr bool in_pieces = false;
  using state = sum_state;
  static __device__ state none() { return {-INFINITY, 0}; }
  static __device__ state load(const running &r, const int64_t *o, int64_t i) {
    return {load_float(r.x, o[2] + i * r.step[2], r.dtype), 1};
  }
  static __device__ void store(const running &r, const int64_t *o, int64_t i, state s) {
    const double y = isinf(s.largest) ? s.largest : s.largest + log(s.sum);
    store_float(r.y, o[0] + i * r.step[0], y, r.dtype);
  }
  __device__ state operator()(const state &a, const state &b) const {
    if (a.largest == b.largest) return {a.largest, a.sum + b.sum};
    if (isnan(a.largest) || isnan(b.largest)) return {NAN, 1};
    return a.largest > b.largest
               ? state{a.largest, a.sum + b.sum * exp(b.largest - a.largest)}
               : state{b.largest, a.sum * exp(a.largest - b.largest) + b.sum};
  }
};

// y = factor * (what came before) + value.
struct affine_state {
  double factor, value;
};
struct recurrence {
  static constexpr int items = 4;
  static constexpr bool in_pieces = false;
  using state = affine_state;
  static __device__ state none() { return {1, 0}; }
  static __device__ state load(const running &r, const int64_t *o, int64_t i) {
    return {load_float(r.a, o[3] + i * r.step[3], r.dtype),
            load_float(r.x, o[2] + i * r.step[2], r.dtype)};
  }
  static __device__ void store(const running &r, const int64_t *o, int64_t i, state s) {
    store_float(r.y, o[0] + i * r.step[0], s.value, r.dtype);
  }
  __device__ state operator()(const state &a, const state &b) const {
    return {a.factor * b.factor, b.factor * a.value + b.value};
  }
};

constexpr int threads = 256, most_items = 8, tile = threads * most_items;

// A block a split of a line, walked in tiles. totals: of each split, or with `fill` what
// comes before each.
template <class Op>
__global__ void __launch_bounds__(threads)
    running_line_kernel(typename Op::state *totals, bool fill,
                        const __grid_constant__ running r) {
  using state = typename Op::state;
  using scan = cub::BlockScan<state, threads, cub::BLOCK_SCAN_WARP_SCANS>;
  constexpr int items = Op::items;
  __shared__ typename scan::TempStorage room;
  const Op op;
  const bool pieces = Op::in_pieces && r.pieces;
  for (int64_t line = blockIdx.x; line < r.s.numel; line += gridDim.x) {
    int64_t o[4];
    seek(r.s, line, o);
    const int64_t begin = blockIdx.y * r.per_split;
    const int64_t end = begin + r.per_split < r.length ? begin + r.per_split : r.length;
    state carried = Op::none();
    if (fill && totals) carried = totals[line * gridDim.y + blockIdx.y];
    for (int64_t from = begin; from < end; from += threads * items) {
      const int64_t first = from + int64_t(threadIdx.x) * items;
      state s[items], all;
      if (pieces) {
        if constexpr (Op::in_pieces)
#pragma unroll
          for (int j = 0; j < items; j += 4) {
            if (first + j < end)
              Op::load_piece(r, o, first + j, s + j);
            else
              s[j] = s[j + 1] = s[j + 2] = s[j + 3] = Op::none();
          }
      } else {
#pragma unroll
        for (int j = 0; j < items; j++)
          s[j] = first + j < end ? Op::load(r, o, first + j) : Op::none();
      }
#pragma unroll
      for (int j = 1; j < items; j++) s[j] = op(s[j - 1], s[j]);
      state before;
      scan(room).ExclusiveScan(s[items - 1], before, Op::none(), op, all);
      if (fill) {
        before = op(carried, before);
#pragma unroll
        for (int j = 0; j < items; j++) s[j] = op(before, s[j]);
        if (pieces) {
          if constexpr (Op::in_pieces)
#pragma unroll
            for (int j = 0; j < items; j += 4)
              if (first + j < end) Op::store_piece(r, o, first + j, s + j);
        } else {
#pragma unroll
          for (int j = 0; j < items; j++)
            if (first + j < end) Op::store(r, o, first + j, s[j]);
        }
      }
      carried = op(carried, all);
      __syncthreads();
    }
    if (!fill && threadIdx.x == 0) totals[line * gridDim.y + blockIdx.y] = carried;
  }
}

// totals[i] = those before it joined; at most 8 * threads splits a line.
template <class Op>
__global__ void __launch_bounds__(threads)
    join_totals_kernel(typename Op::state *totals, int64_t lines, int splits) {
  using state = typename Op::state;
  using scan = cub::BlockScan<state, threads, cub::BLOCK_SCAN_WARP_SCANS>;
  __shared__ typename scan::TempStorage room;
  const Op op;
  const int each = (splits + threads - 1) / threads;
  for (int64_t line = blockIdx.x; line < lines; line += gridDim.x) {
    state *t = totals + line * splits;
    const int first = int(threadIdx.x) * each;
    state sum = Op::none(), before;
    for (int i = first; i < first + each && i < splits; i++) sum = op(sum, t[i]);
    scan(room).ExclusiveScan(sum, before, Op::none(), op);
    for (int i = first; i < first + each && i < splits; i++) {
      const state own = t[i];
      t[i] = before;
      before = op(before, own);
    }
    __syncthreads();
  }
}

// Lines side by side: a thread a line.
template <class Op>
__global__ void __launch_bounds__(256)
    running_across_kernel(const __grid_constant__ running r) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  const Op op;
  for (int64_t line = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; line < r.s.numel;
       line += step) {
    int64_t o[4];
    seek(r.s, line, o);
    typename Op::state sum = Op::none();
    for (int64_t i = 0; i < r.length; i += 4) {
      typename Op::state s[4];
#pragma unroll
      for (int j = 0; j < 4; j++)
        s[j] = i + j < r.length ? Op::load(r, o, i + j) : Op::none();
#pragma unroll
      for (int j = 0; j < 4; j++)
        if (i + j < r.length) {
          sum = op(sum, s[j]);
          Op::store(r, o, i + j, sum);
        }
    }
  }
}

mt_view without_dim(const mt_view *v, int dim) {
  mt_view rest = *v;
  rest.ndim = 0;
  for (int d = 0; d < v->ndim; d++)
    if (d != dim)
      rest.shape[rest.ndim] = v->shape[d], rest.stride[rest.ndim++] = v->stride[d];
  rest.host = 0;
  return rest;
}

struct plan {
  running r;
  bool across;
  int splits;
};

// Do v's lines consist of whole pieces of four elements?
bool whole_pieces(const running &r, int k, const void *p, int64_t size) {
  if (!p) return true;
  bool fits = r.step[k] == 1 && reinterpret_cast<uintptr_t>(p) % (4 * size) == 0;
  for (int d = 0; d < r.s.ndim; d++) fits = fits && r.s.stride[k][d] % 4 == 0;
  return fits;
}

plan make_plan(const mt_call *call) {
  const bool two = call->op == MT_OP__recurrence;
  const mt_view *view[4] = {call->out[0], call->nout > 1 ? call->out[1] : nullptr,
                            call->in[two ? 1 : 0], two ? call->in[0] : nullptr};
  const int dim = int(call->attr[0].i[0]);
  const bool reverse = two && call->attr[1].i[0];
  mt_view rest[4];
  const mt_view *shape[4];
  plan p{};
  running &r = p.r;
  r.dtype = view[2]->dtype;
  r.length = view[2]->ndim ? view[2]->shape[dim] : 1;
  char *data[4];
  for (int k = 0; k < 4; k++) {
    const mt_view *v = view[k];
    rest[k] = without_dim(v ? v : view[2], dim);
    shape[k] = &rest[k];
    data[k] = v ? v->data : nullptr;
    r.step[k] = v && v->ndim ? v->stride[dim] : 0;
    if (reverse && v) {
      data[k] += (r.length - 1) * r.step[k] * dtype_size(v->dtype);
      r.step[k] = -r.step[k];
    }
  }
  const mt_view *const all[4] = {shape[0], shape[1], shape[2], shape[3]};
  r.s = make_space(all);
  r.y = data[0], r.index = reinterpret_cast<int64_t *>(data[1]);
  r.x = data[2], r.a = data[3];
  r.least = call->op == MT_OP_cummin;
  r.pieces = r.dtype == MT_F32 && r.length % 4 == 0 && whole_pieces(r, 0, r.y, 4) &&
             whole_pieces(r, 1, r.index, 4) && whole_pieces(r, 2, r.x, 4);
  p.across = r.s.ndim > 0 && r.s.stride[2][0] == 1 && r.s.size[0] >= 32 &&
             r.step[2] != 1 && r.step[2] != -1;
  const int64_t busy = int64_t(multiprocessors(call->device)) * 8;
  const int64_t lines = r.s.numel > 0 ? r.s.numel : 1;
  int64_t splits = p.across ? 1 : busy / lines;
  const int64_t pieces = r.length / (4 * tile);
  splits = splits > pieces ? pieces : splits;
  splits = splits < 1 ? 1 : splits > 8 * threads ? 8 * threads : splits;
  r.per_split = ((r.length + splits - 1) / splits + tile - 1) / tile * tile;
  p.splits = r.length > 0 ? int((r.length + r.per_split - 1) / r.per_split) : 1;
  return p;
}

size_t running_scratch(const mt_call *call) {
  const plan p = make_plan(call);
  return p.splits > 1 ? size_t(p.r.s.numel) * size_t(p.splits) * 16 : 0;
}

template <class Op> mt_status launch_running(const mt_call *call, const plan &p) {
  using state = typename Op::state;
  const int64_t lines = p.r.s.numel;
  const cudaStream_t stream = stream_of(call);
  if (p.across) {
    running_across_kernel<Op>
        <<<blocks_for(lines, 256, call->device), 256, 0, stream>>>(p.r);
    return launched();
  }
  const unsigned most = unsigned(lines < INT32_MAX ? lines : INT32_MAX);
  const dim3 grid(most, unsigned(p.splits));
  state *totals = nullptr;
  if (p.splits > 1) {
    totals = static_cast<state *>(call->scratch);
    running_line_kernel<Op><<<grid, threads, 0, stream>>>(totals, false, p.r);
    if (const mt_status status = launched()) return status;
    join_totals_kernel<Op><<<most, threads, 0, stream>>>(totals, lines, p.splits);
    if (const mt_status status = launched()) return status;
  }
  running_line_kernel<Op><<<grid, threads, 0, stream>>>(totals, true, p.r);
  return launched();
}

template <class Float, class Int> mt_status run(const mt_call *call) {
  const plan p = make_plan(call);
  if (p.r.s.numel == 0 || p.r.length == 0) return MT_OK;
  return MT_IS_FLOAT(p.r.dtype) ? launch_running<Float>(call, p)
                                : launch_running<Int>(call, p);
}

mt_status run_extreme(const mt_call *call) {
  const plan p = make_plan(call);
  if (p.r.s.numel == 0 || p.r.length == 0) return MT_OK;
  if (!MT_IS_FLOAT(p.r.dtype))
    return launch_running<extreme<int64_t, int64_t>>(call, p);
  return p.r.dtype == MT_F64 || p.r.length >= INT32_MAX
             ? launch_running<extreme<double, int64_t>>(call, p)
             : launch_running<extreme<float, int32_t>>(call, p);
}

template <class Op> mt_status run_float(const mt_call *call) {
  const plan p = make_plan(call);
  if (p.r.s.numel == 0 || p.r.length == 0) return MT_OK;
  return launch_running<Op>(call, p);
}

} // namespace

CUDA_ENTRY(cumprod) = {run<float_product, int_product>, running_scratch, MT_ALL_MASK,
                       0};
CUDA_ENTRY(cummax) = {run_extreme, running_scratch, MT_ALL_MASK, 0};
CUDA_ENTRY(cummin) = {run_extreme, running_scratch, MT_ALL_MASK, 0};
CUDA_ENTRY(logcumsumexp) = {run_float<log_sum>, running_scratch, MT_FLOAT_MASK, 0};
CUDA_ENTRY(_recurrence) = {run_float<recurrence>, running_scratch, MT_FLOAT_MASK, 0};
