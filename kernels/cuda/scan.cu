// kernels/cuda/scan.cu -- running sums along a dim, and positions of what is not 0.
#include <cub/device/device_select.cuh>
#include <thrust/iterator/counting_iterator.h>
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/marked.cuh"
#include "kernels/cuda/row_sums.cuh"

namespace {

template <class S>
using wide_t =
    typename std::conditional<std::is_integral<S>::value, int64_t, double>::type;

template <class O, class T> __device__ inline O narrow(T x) {
  if constexpr (sizeof(O) == 2 && !std::is_integral<O>::value)
    return store_as<O>(float(x));
  else
    return O(x);
}

struct scan_line {
  int64_t length, x_step, y_step; // elements, negative in reverse
  int64_t per_split;              // blocks share a line: so many elements each
};

// V neighbours of a line from element i on; the line may run backwards.
template <class S, int V>
__device__ inline pack<S, V> load_piece(const S *x, int64_t step, int64_t i) {
  if constexpr (V == 1)
    return {{x[i * step]}};
  else {
    if (step > 0) return *reinterpret_cast<const pack<S, V> *>(x + i);
    const pack<S, V> p = *reinterpret_cast<const pack<S, V> *>(x - i - (V - 1));
    pack<S, V> r;
#pragma unroll
    for (int j = 0; j < V; j++) r.at[j] = p.at[V - 1 - j];
    return r;
  }
}
template <class O, int V>
__device__ inline void store_piece(O *y, int64_t step, int64_t i, const pack<O, V> &p) {
  if constexpr (V == 1)
    y[i * step] = p.at[0];
  else if (step > 0)
    *reinterpret_cast<pack<O, V> *>(y + i) = p;
  else {
    pack<O, V> r;
#pragma unroll
    for (int j = 0; j < V; j++) r.at[j] = p.at[V - 1 - j];
    *reinterpret_cast<pack<O, V> *>(y - i - (V - 1)) = r;
  }
}

constexpr int scan_threads = 256, scan_pieces = 4;

// The sum of each split of each line: [line][split].
template <class S>
__global__ void __launch_bounds__(scan_threads)
    scan_sums_kernel(wide_t<S> *sums, const S *x, scan_line q,
                     const __grid_constant__ space<2> s) {
  using T = wide_t<S>;
  for (int64_t line = blockIdx.x; line < s.numel; line += gridDim.x) {
    int64_t offset[2];
    seek(s, line, offset);
    const int64_t begin = blockIdx.y * q.per_split;
    const int64_t end = begin + q.per_split < q.length ? begin + q.per_split : q.length;
    T sum = 0;
#pragma unroll 8
    for (int64_t i = begin + threadIdx.x; i < end; i += scan_threads)
      sum += T(load_as<compute_t<S>>(x[offset[1] + i * q.x_step]));
    sum = row_sum(sum);
    if (threadIdx.x == 0) sums[line * gridDim.y + blockIdx.y] = sum;
  }
}

// A block a split of a line, walked in tiles. In a tile each warp has neighbouring pieces:
// sums of a thread's piece, of a warp's lanes, of warps, then what was carried.
template <class S, class O, int V>
__global__ void __launch_bounds__(scan_threads)
    scan_line_kernel(O *y, const S *x, scan_line q, const __grid_constant__ space<2> s,
                     const wide_t<S> *sums) {
  using T = wide_t<S>;
  constexpr int U = scan_pieces, warps = scan_threads / 32;
  constexpr int64_t tile = int64_t(scan_threads) * U * V;
  __shared__ T held[2][warps]; // by turns, so that a tile needs one barrier
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int turn = 0;
  for (int64_t line = blockIdx.x; line < s.numel; line += gridDim.x) {
    int64_t offset[2];
    seek(s, line, offset);
    const int64_t begin = blockIdx.y * q.per_split;
    const int64_t end = begin + q.per_split < q.length ? begin + q.per_split : q.length;
    T carried = 0;
    if (sums) {
      for (int k = threadIdx.x; k < int(blockIdx.y); k += scan_threads)
        carried += sums[line * gridDim.y + k];
      carried = row_sum(carried);
    }
    for (int64_t from = begin; from < end; from += tile, turn ^= 1) {
      pack<S, V> p[U];
      T sum[U];
      const int64_t first = from + (int64_t(warp) * U * 32 + lane) * V;
#pragma unroll
      for (int u = 0; u < U; u++) {
        const int64_t i = first + u * 32 * V;
        if (i < end)
          p[u] = load_piece<S, V>(x + offset[1], q.x_step, i);
        else
          p[u] = pack<S, V>{};
      }
#pragma unroll
      for (int u = 0; u < U; u++) {
        sum[u] = 0;
#pragma unroll
        for (int j = 0; j < V; j++) sum[u] += T(load_as<compute_t<S>>(p[u].at[j]));
      }
#pragma unroll
      for (int step = 1; step < 32; step *= 2)
#pragma unroll
        for (int u = 0; u < U; u++) {
          const T other = __shfl_up_sync(~0u, sum[u], step);
          if (lane >= step) sum[u] += other;
        }
      T total = 0; // of the warp's pieces so far
#pragma unroll
      for (int u = 0; u < U; u++) {
        const T all = __shfl_sync(~0u, sum[u], 31);
        const T lanes_before = __shfl_up_sync(~0u, sum[u], 1);
        sum[u] = total + (lane > 0 ? lanes_before : T(0));
        total += all;
      }
      if (lane == 0) held[turn][warp] = total;
      __syncthreads();
      T before = 0;
#pragma unroll
      for (int w = 0; w < warps; w++) {
        if (w == warp) before = carried;
        carried += held[turn][w];
      }
#pragma unroll
      for (int u = 0; u < U; u++) {
        const int64_t i = first + u * 32 * V;
        pack<O, V> out;
        T running = before + sum[u];
#pragma unroll
        for (int j = 0; j < V; j++) {
          running += T(load_as<compute_t<S>>(p[u].at[j]));
          out.at[j] = narrow<O>(running);
        }
        if (i < end) store_piece<O, V>(y + offset[0], q.y_step, i, out);
      }
    }
  }
}

// Many lines side by side: a thread a line.
template <class S, class O>
__global__ void __launch_bounds__(256)
    scan_across_kernel(O *y, const S *x, scan_line q,
                       const __grid_constant__ space<2> s) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t l = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; l < s.numel;
       l += step) {
    int64_t offset[2];
    wide_t<S> sum = 0;
    seek(s, l, offset);
    const S *from = x + offset[1];
    O *to = y + offset[0];
    for (int64_t i = 0; i < q.length; i += 8) {
      S v[8];
#pragma unroll
      for (int j = 0; j < 8; j++)
        if (i + j < q.length) v[j] = from[(i + j) * q.x_step];
#pragma unroll
      for (int j = 0; j < 8; j++)
        if (i + j < q.length) {
          sum += wide_t<S>(load_as<compute_t<S>>(v[j]));
          to[(i + j) * q.y_step] = narrow<O>(sum);
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

// What a cumsum walks: out's and in's lines, and how.
struct scan_plan {
  space<2> s;
  scan_line q;
  bool across;
  int splits;
};

scan_plan plan_scan(const mt_call *call) {
  const mt_view *x = call->in[0], *y = call->out[0];
  const int dim = int(call->attr[0].i[0]);
  const mt_view rest_y = without_dim(y, dim), rest_x = without_dim(x, dim);
  const mt_view *const view[2] = {&rest_y, &rest_x};
  scan_plan p;
  p.s = make_space(view);
  p.q = {x->ndim ? x->shape[dim] : 1, x->ndim ? x->stride[dim] : 1,
         y->ndim ? y->stride[dim] : 1, 0};
  const bool side_by_side = p.s.ndim > 0 && p.s.stride[1][0] == 1 && p.s.size[0] >= 32;
  p.across = side_by_side && p.q.x_step != 1;
  // long lines are shared when there are few: a multiple of any tile each
  constexpr int64_t step = int64_t(scan_threads) * scan_pieces * 8;
  const int64_t busy = int64_t(multiprocessors(call->device)) * 8;
  const int64_t pieces = p.q.length / step, lines = p.s.numel > 0 ? p.s.numel : 1;
  int64_t splits = p.across ? 1 : busy / lines;
  splits = splits > pieces ? pieces : splits;
  splits = splits < 1 ? 1 : splits;
  p.q.per_split = ((p.q.length + splits - 1) / splits + step - 1) / step * step;
  p.splits = p.q.length > 0 ? int((p.q.length + p.q.per_split - 1) / p.q.per_split) : 1;
  if (p.splits <= 1) p.splits = 1, p.q.per_split = p.q.length;
  return p;
}

size_t scan_scratch(const mt_call *call) {
  const scan_plan p = plan_scan(call);
  return p.splits > 1 ? size_t(p.s.numel) * size_t(p.splits) * 8 : 0;
}

// Does every piece of V elements of a line lie at a multiple of its size?
template <class S, class O, int V>
bool in_pieces(const scan_plan &p, const S *x, O *y) {
  if (p.q.x_step != 1 || p.q.y_step != 1 || p.q.length % V) return false;
  for (int d = 0; d < p.s.ndim; d++)
    if (p.s.stride[0][d] % V || p.s.stride[1][d] % V) return false;
  return reinterpret_cast<uintptr_t>(x) % (V * sizeof(S)) == 0 &&
         reinterpret_cast<uintptr_t>(y) % (V * sizeof(O)) == 0;
}

template <class S, class O> mt_status launch_scan(const mt_call *call, scan_plan p) {
  constexpr int V = 16 / int(sizeof(O));
  const cudaStream_t stream = stream_of(call);
  O *y = reinterpret_cast<O *>(call->out[0]->data);
  const S *x = reinterpret_cast<const S *>(call->in[0]->data);
  const bool pieces = in_pieces<S, O, V>(p, x, y);
  if (call->attr[1].i[0]) { // from the end
    x += (p.q.length - 1) * p.q.x_step, y += (p.q.length - 1) * p.q.y_step;
    p.q.x_step = -p.q.x_step, p.q.y_step = -p.q.y_step;
  }
  if (p.across) {
    scan_across_kernel<S, O>
        <<<blocks_for(p.s.numel, 256, call->device), 256, 0, stream>>>(y, x, p.q, p.s);
    return launched();
  }
  const dim3 grid(unsigned(p.s.numel < INT32_MAX ? p.s.numel : INT32_MAX),
                  unsigned(p.splits));
  wide_t<S> *sums = nullptr;
  if (p.splits > 1) {
    sums = static_cast<wide_t<S> *>(call->scratch);
    scan_sums_kernel<S><<<grid, scan_threads, 0, stream>>>(sums, x, p.q, p.s);
    if (const mt_status status = launched()) return status;
  }
  if (pieces)
    scan_line_kernel<S, O, V><<<grid, scan_threads, 0, stream>>>(y, x, p.q, p.s, sums);
  else
    scan_line_kernel<S, O, 1><<<grid, scan_threads, 0, stream>>>(y, x, p.q, p.s, sums);
  return launched();
}

mt_status run_cumsum(const mt_call *call) {
  const mt_view *x = call->in[0];
  const scan_plan p = plan_scan(call);
  if (p.s.numel == 0 || p.q.length == 0) return MT_OK;
  if (x->dtype == MT_BOOL) return launch_scan<uint8_t, int64_t>(call, p);
  if (MT_IS_FLOAT(x->dtype))
    return with_float(x->dtype, [&](auto t) {
      using S = typename decltype(t)::type;
      return launch_scan<S, S>(call, p);
    });
  return with_int(x->dtype, [&](auto t) {
    return launch_scan<typename decltype(t)::type, int64_t>(call, p);
  });
}

// ---- _nonzero(x, count): positions from 1 in x's row-major order ------------------------

struct is_set {
  const char *x;
  int64_t size; // bytes of an element
  bool is_float;
  space<1> s;
  __device__ bool operator()(int64_t i) const {
    int64_t offset;
    seek(s, i - 1, &offset);
    const char *p = x + offset * size;
    uint64_t bits;
    switch (size) {
    case 1: bits = *reinterpret_cast<const uint8_t *>(p); break;
    case 2: bits = *reinterpret_cast<const uint16_t *>(p); break;
    case 4: bits = *reinterpret_cast<const uint32_t *>(p); break;
    default: bits = *reinterpret_cast<const uint64_t *>(p);
    }
    if (is_float) bits &= ~(uint64_t(1) << (size * 8 - 1)); // -0 is 0
    return bits != 0;
  }
};

cudaError_t select_set(void *room, size_t &bytes, const mt_call *call,
                       const space<1> &s, int64_t *out, int64_t *found) {
  const mt_view *x = call->in[0];
  const is_set set = {x->data, dtype_size(x->dtype), bool(MT_IS_FLOAT(x->dtype)), s};
  return cub::DeviceSelect::If(room, bytes, thrust::counting_iterator<int64_t>(1), out,
                               found, s.numel, set, stream_of(call));
}

size_t nonzero_scratch(const mt_call *call) {
  if (is_plain_mask(call->in[0])) return marked_scratch(call->in[0]);
  const mt_view *const view[1] = {call->in[0]};
  const space<1> s = make_space(view, true);
  size_t bytes = 0;
  if (s.numel == 0) return 0;
  select_set(nullptr, bytes, call, s, nullptr, nullptr);
  return bytes + 256;
}

mt_status run_nonzero(const mt_call *call) {
  if (is_plain_mask(call->in[0])) return marked_positions(call);
  const mt_view *const view[1] = {call->in[0]};
  const space<1> s = make_space(view, true);
  if (s.numel == 0 || numel(call->out[0]) == 0) return MT_OK;
  size_t bytes = call->scratch_bytes - 256;
  int64_t *found = static_cast<int64_t *>(call->scratch);
  char *room = static_cast<char *>(call->scratch) + 256;
  CUDA_TRY(select_set(room, bytes, call, s,
                      reinterpret_cast<int64_t *>(call->out[0]->data), found));
  return MT_OK;
}

} // namespace

CUDA_ENTRY(cumsum) = {run_cumsum, scan_scratch, MT_ALL_MASK, 0};
CUDA_ENTRY(_nonzero) = {run_nonzero, nonzero_scratch, MT_ALL_MASK, 0};
