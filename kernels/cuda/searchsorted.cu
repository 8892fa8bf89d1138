// kernels/cuda/searchsorted.cu -- where elements go in sorted lines, by halving.
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/space.cuh"

namespace {

// NaN comes behind all others.
template <class T> __device__ inline bool less_than(T a, T b) {
  return a < b || (b != b && a == a);
}

// sorted: lines of n; x: lines of m, each in its own unless there is one for all.
template <class S>
__global__ void __launch_bounds__(256)
    searchsorted_kernel(int64_t *y, const S *sorted, const S *x, int64_t all, int64_t n,
                        int64_t m, bool shared, bool right) {
  using T = compute_t<S>;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += step) {
    const S *line = shared ? sorted : sorted + i / m * n;
    const T v = load_as<T>(x[i]);
    int64_t from = 0, count = n;
    while (count > 0) {
      const int64_t half = count / 2;
      const T w = load_as<T>(line[from + half]);
      const bool goes_on = right ? !less_than(v, w) : less_than(w, v);
      from = goes_on ? from + half + 1 : from;
      count = goes_on ? count - half - 1 : half;
    }
    y[i] = from + 1;
  }
}

mt_status run_searchsorted(const mt_call *call) {
  const mt_view *sorted = call->in[0], *x = call->in[1];
  const int64_t all = numel(x), n = sorted->shape[sorted->ndim - 1];
  const int64_t m = x->ndim ? x->shape[x->ndim - 1] : 1;
  if (all == 0) return MT_OK;
  const auto launch = [&](auto t) {
    using S = typename decltype(t)::type;
    searchsorted_kernel<S>
        <<<blocks_for(all, 256, call->device), 256, 0, stream_of(call)>>>(
            reinterpret_cast<int64_t *>(call->out[0]->data),
            reinterpret_cast<const S *>(sorted->data),
            reinterpret_cast<const S *>(x->data), all, n, m, sorted->ndim == 1,
            call->attr[0].i[0] != 0);
    return launched();
  };
  if (sorted->dtype == MT_BOOL) return launch(tag<uint8_t>{});
  return with_number(sorted->dtype, launch);
}

} // namespace

CUDA_ENTRY(searchsorted) = {run_searchsorted, nullptr, MT_ALL_MASK, 3};
