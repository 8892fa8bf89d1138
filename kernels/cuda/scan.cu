// kernels/cuda/scan.cu -- running sums along a dim, and positions of what is not 0.
#include <cub/block/block_scan.cuh>
#include <cub/device/device_select.cuh>
#include <thrust/iterator/counting_iterator.h>
#include "kernels/cuda/elementwise.cuh"

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
};

// A block a line: pieces of threads x ITEMS elements, the total carried on.
constexpr int threads = 256, items = 8;
template <class S, class O>
__global__ void __launch_bounds__(threads)
    scan_line_kernel(O *y, const S *x, scan_line q,
                     const __grid_constant__ space<2> s) {
  using T = wide_t<S>;
  using scan = cub::BlockScan<T, threads>;
  __shared__ typename scan::TempStorage room;
  for (int64_t line = blockIdx.x; line < s.numel; line += gridDim.x) {
    int64_t offset[2];
    T carried = 0;
    seek(s, line, offset);
    for (int64_t from = 0; from < q.length; from += threads * items) {
      T v[items], total;
#pragma unroll
      for (int k = 0; k < items; k++) {
        const int64_t i = from + int64_t(threadIdx.x) * items + k;
        v[k] =
            i < q.length ? T(load_as<compute_t<S>>(x[offset[1] + i * q.x_step])) : T(0);
      }
      scan(room).InclusiveSum(v, v, total);
#pragma unroll
      for (int k = 0; k < items; k++) {
        const int64_t i = from + int64_t(threadIdx.x) * items + k;
        if (i < q.length) y[offset[0] + i * q.y_step] = narrow<O>(carried + v[k]);
      }
      carried += total;
      __syncthreads();
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
    for (int64_t i = 0; i < q.length; i++) {
      sum += wide_t<S>(load_as<compute_t<S>>(x[offset[1] + i * q.x_step]));
      y[offset[0] + i * q.y_step] = narrow<O>(sum);
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

template <class S, class O>
mt_status launch_scan(const mt_call *call, scan_line q, const space<2> &s) {
  O *y = reinterpret_cast<O *>(call->out[0]->data);
  const S *x = reinterpret_cast<const S *>(call->in[0]->data);
  if (call->attr[1].i[0]) {
    x += (q.length - 1) * q.x_step, y += (q.length - 1) * q.y_step;
    q.x_step = -q.x_step, q.y_step = -q.y_step;
  }
  const bool side_by_side = s.ndim > 0 && s.stride[1][0] == 1 && s.size[0] >= 32;
  if (side_by_side && q.x_step != 1 && q.x_step != -1)
    scan_across_kernel<S, O>
        <<<blocks_for(s.numel, 256, call->device), 256, 0, stream_of(call)>>>(y, x, q,
                                                                              s);
  else
    scan_line_kernel<S, O><<<unsigned(s.numel < INT32_MAX ? s.numel : INT32_MAX),
                             threads, 0, stream_of(call)>>>(y, x, q, s);
  return launched();
}

mt_status run_cumsum(const mt_call *call) {
  const mt_view *x = call->in[0], *y = call->out[0];
  const int dim = int(call->attr[0].i[0]);
  const mt_view rest_y = without_dim(y, dim), rest_x = without_dim(x, dim);
  const mt_view *const view[2] = {&rest_y, &rest_x};
  const space<2> s = make_space(view);
  const scan_line q = {x->ndim ? x->shape[dim] : 1, x->ndim ? x->stride[dim] : 1,
                       y->ndim ? y->stride[dim] : 1};
  if (s.numel == 0 || q.length == 0) return MT_OK;
  if (x->dtype == MT_BOOL) return launch_scan<uint8_t, int64_t>(call, q, s);
  if (MT_IS_FLOAT(x->dtype))
    return with_float(x->dtype, [&](auto t) {
      using S = typename decltype(t)::type;
      return launch_scan<S, S>(call, q, s);
    });
  return with_int(x->dtype, [&](auto t) {
    return launch_scan<typename decltype(t)::type, int64_t>(call, q, s);
  });
}

// ---- _nonzero(x, count): positions from 1 in x's row-major order ------------------------

template <class S> struct is_set {
  const S *x;
  space<1> s;
  __device__ bool operator()(int64_t i) const {
    int64_t offset;
    seek(s, i - 1, &offset);
    return load_as<compute_t<S>>(x[offset]) != compute_t<S>(0);
  }
};

template <class S>
cudaError_t select_set(void *room, size_t &bytes, const mt_call *call,
                       const space<1> &s, int64_t *out, int64_t *found) {
  const is_set<S> set = {reinterpret_cast<const S *>(call->in[0]->data), s};
  return cub::DeviceSelect::If(room, bytes, thrust::counting_iterator<int64_t>(1), out,
                               found, s.numel, set, stream_of(call));
}

template <class F> mt_status for_storage(mt_dtype d, F f) {
  return d == MT_BOOL ? f(tag<uint8_t>{}) : with_number(d, f);
}

size_t nonzero_scratch(const mt_call *call) {
  const mt_view *const view[1] = {call->in[0]};
  const space<1> s = make_space(view, true);
  size_t bytes = 0;
  if (s.numel == 0) return 0;
  for_storage(call->in[0]->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    select_set<S>(nullptr, bytes, call, s, nullptr, nullptr);
    return MT_OK;
  });
  return bytes + 256;
}

mt_status run_nonzero(const mt_call *call) {
  const mt_view *const view[1] = {call->in[0]};
  const space<1> s = make_space(view, true);
  if (s.numel == 0 || numel(call->out[0]) == 0) return MT_OK;
  size_t bytes = call->scratch_bytes - 256;
  int64_t *found = static_cast<int64_t *>(call->scratch);
  char *room = static_cast<char *>(call->scratch) + 256;
  return for_storage(call->in[0]->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    CUDA_TRY(select_set<S>(room, bytes, call, s,
                           reinterpret_cast<int64_t *>(call->out[0]->data), found));
    return MT_OK;
  });
}

} // namespace

CUDA_ENTRY(cumsum) = {run_cumsum, nullptr, MT_ALL_MASK, 0};
CUDA_ENTRY(_nonzero) = {run_nonzero, nonzero_scratch, MT_ALL_MASK, 0};
