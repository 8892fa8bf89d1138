// kernels/cuda/elementwise.cuh -- one kernel for rows of 16-byte pieces, one for any
// strides; F is the functor of one operator for one element type, made by functors.inc.
#ifndef MT_CUDA_ELEMENTWISE_CUH
#define MT_CUDA_ELEMENTWISE_CUH

#include "kernels/cuda/elementwise_tables.cuh"
#include "kernels/cuda/space.cuh"

// ---- storage to arithmetic and back ---------------------------------------------------
template <class T, class S> __device__ inline T load_as(S x) { return T(x); }
template <> __device__ inline float load_as<float, __half>(__half x) {
  return __half2float(x);
}
template <> __device__ inline float load_as<float, __nv_bfloat16>(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
template <class S, class T> __device__ inline S store_as(T x) { return S(x); }
template <> __device__ inline __half store_as<__half, float>(float x) {
  return __float2half_rn(x);
}
template <> __device__ inline __nv_bfloat16 store_as<__nv_bfloat16, float>(float x) {
  return __float2bfloat16_rn(x);
}

template <class S, int V> struct alignas(sizeof(S) * V) pack { S at[V]; };

template <class T> struct attributes { T at[2]; };

// An input as the row kernel sees it.
template <class T, class S> struct operand {
  const S *p;  // NULL: the value serves for every element
  int64_t row; // elements from one row to the next
  int step;    // 1: elements lie side by side; 0: one for the whole row
  T value;
};

template <class F, class S> struct row_arguments {
  using T = typename F::type;
  using O = typename F::template stored<S>;
  O *out;
  int64_t out_row;
  int64_t rows, columns;
  operand<T, S> in[F::inputs];
  attributes<T> attr;
  mt_fault *fault;
};

// An integer divided by 0 is noted, whatever value the formula goes on with.
template <class F>
__device__ inline void check_divisor(const typename F::type *v, int64_t position,
                                     mt_fault *fault) {
  if constexpr (F::divides)
    if (v[1] == 0) fault_set(fault, F::op, position, 0, 1, 0);
}

// blockDim = (pieces, rows); a thread has U pieces of V neighbours, blockDim.x pieces apart,
// of a row at a time, all of them read before the first is worked on.
template <class F, class S, int V, int U>
__global__ void __launch_bounds__(256)
    rows_kernel(const __grid_constant__ row_arguments<F, S> a) {
  using T = typename F::type;
  using O = typename F::template stored<S>;
  constexpr int N = F::inputs;
  const int apart = blockDim.x * V;
  const int64_t across = int64_t(gridDim.x) * apart * U;
  for (int64_t r = int64_t(blockIdx.y) * blockDim.y + threadIdx.y; r < a.rows;
       r += int64_t(gridDim.y) * blockDim.y) {
    O *to = a.out + r * a.out_row;
    for (int64_t c = int64_t(blockIdx.x) * apart * U + threadIdx.x * V; c < a.columns;
         c += across) {
      pack<S, V> in[U][N];
#pragma unroll
      for (int u = 0; u < U; u++) {
        const int64_t at = c + u * apart;
        if (at + V > a.columns) continue;
#pragma unroll
        for (int k = 0; k < N; k++) {
          const operand<T, S> &q = a.in[k];
          if (!q.p) continue;
          const S *p = q.p + r * q.row;
          if (q.step)
            in[u][k] = *reinterpret_cast<const pack<S, V> *>(p + at);
          else {
            const S one = *p;
#pragma unroll
            for (int i = 0; i < V; i++) in[u][k].at[i] = one;
          }
        }
      }
#pragma unroll
      for (int u = 0; u < U; u++) {
        const int64_t at = c + u * apart;
        if (at + V > a.columns) continue;
        pack<O, V> out;
#pragma unroll
        for (int i = 0; i < V; i++) {
          T v[N];
#pragma unroll
          for (int k = 0; k < N; k++)
            v[k] = a.in[k].p ? load_as<T>(in[u][k].at[i]) : a.in[k].value;
          check_divisor<F>(v, r * a.columns + at + i, a.fault);
          out.at[i] = store_as<O>(F::run(v, a.attr.at));
        }
        *reinterpret_cast<pack<O, V> *>(to + at) = out;
      }
    }
    // what is less than a piece: an element a thread
    const int64_t at = a.columns / V * V + threadIdx.x;
    if (blockIdx.x == 0 && at < a.columns) {
      T v[N];
#pragma unroll
      for (int k = 0; k < N; k++) {
        const operand<T, S> &q = a.in[k];
        v[k] = q.p ? load_as<T>(q.p[r * q.row + (q.step ? at : 0)]) : q.value;
      }
      check_divisor<F>(v, r * a.columns + at, a.fault);
      to[at] = store_as<O>(F::run(v, a.attr.at));
    }
  }
}

template <class F, class S> struct strided_arguments {
  using T = typename F::type;
  using O = typename F::template stored<S>;
  O *out;
  const S *in[F::inputs]; // NULL: value
  T value[F::inputs];
  attributes<T> attr;
  mt_fault *fault;
};

template <class F, class S>
__global__ void __launch_bounds__(256)
    strided_kernel(const __grid_constant__ strided_arguments<F, S> a,
                   const __grid_constant__ space<F::inputs + 1> s) {
  using T = typename F::type;
  using O = typename F::template stored<S>;
  constexpr int N = F::inputs;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < s.numel;
       i += step) {
    int64_t offset[N + 1];
    seek(s, i, offset);
    T v[N];
#pragma unroll
    for (int k = 0; k < N; k++)
      v[k] = a.in[k] ? load_as<T>(a.in[k][offset[k + 1]]) : a.value[k];
    check_divisor<F>(v, i, a.fault);
    a.out[offset[0]] = store_as<O>(F::run(v, a.attr.at));
  }
}

// ---- host side ------------------------------------------------------------------------

// A 0-dim value on the host, or what stands for an input that no formula reads.
template <class T, class S> T host_value(const mt_view *v) {
  if (!v) return T(0);
  S x;
  memcpy(&x, v->data, sizeof x);
  if constexpr (std::is_same<S, __half>::value)
    return __half2float(x);
  else if constexpr (std::is_same<S, __nv_bfloat16>::value)
    return __bfloat162float(x);
  else
    return T(x);
}

template <class T> T attribute(const mt_attr *a) {
  if constexpr (std::is_floating_point<T>::value)
    return T(a->f);
  else {
    int64_t i = a->i[0];
    if (!a->is_int) {
      if (!(a->f == a->f))
        i = 0;
      else if (a->f >= 0x1p63)
        i = INT64_MAX;
      else
        i = a->f <= -0x1p63 ? INT64_MIN : int64_t(a->f);
    }
    const int64_t lo = int64_t(std::numeric_limits<T>::min());
    const int64_t hi = int64_t(std::numeric_limits<T>::max());
    return T(i < lo ? lo : i > hi ? hi : i);
  }
}

// Do rows of V-element pieces serve? Then every view lies side by side, or stands
// still, in the innermost loop, and every row begins at a multiple of V elements.
template <int K>
bool rows_fit(const space<K> &s, const mt_view *const (&view)[K], int V) {
  if (s.ndim > 2 || s.ndim == 0 || s.stride[0][0] != 1) return false;
  for (int k = 0; k < K; k++) {
    if (!view[k] || view[k]->host) continue;
    const int64_t size = dtype_size(view[k]->dtype);
    if (s.stride[k][0] != 0 && s.stride[k][0] != 1) return false;
    if (s.stride[k][0] == 1 &&
        (reinterpret_cast<uintptr_t>(view[k]->data) % (size_t(size) * size_t(V)) ||
         (s.ndim == 2 && s.stride[k][1] % V)))
      return false;
  }
  return true;
}

template <class F, class S>
mt_status launch_elementwise(const mt_call *call, const mt_view *out,
                             const mt_view *const *in) {
  using T = typename F::type;
  using O = typename F::template stored<S>;
  constexpr int N = F::inputs, V = 16 / int(sizeof(S));
  constexpr int U = N == 1 ? 2 : 1; // pieces a thread: one input alone keeps too few
  const mt_view *view[N + 1];
  view[0] = out;
  for (int k = 0; k < N; k++) view[k + 1] = in[k];
  const space<N + 1> s = make_space(view);
  if (s.numel == 0) return MT_OK;
  attributes<T> attr{};
  for (int k = 0; k < elementwise_attributes.of[F::op]; k++)
    attr.at[k] = attribute<T>(&call->attr[k]);
  const cudaStream_t stream = stream_of(call);
  if (rows_fit(s, view, V)) {
    row_arguments<F, S> a;
    a.out = reinterpret_cast<O *>(out->data);
    a.columns = s.size[0], a.rows = s.ndim == 2 ? s.size[1] : 1;
    a.out_row = s.ndim == 2 ? s.stride[0][1] : 0;
    a.attr = attr, a.fault = call->fault;
    for (int k = 0; k < N; k++) {
      const bool host = !in[k] || in[k]->host;
      a.in[k] = {host ? nullptr : reinterpret_cast<const S *>(in[k]->data),
                 s.ndim == 2 ? s.stride[k + 1][1] : 0, int(s.stride[k + 1][0]),
                 host ? host_value<T, S>(in[k]) : T(0)};
    }
    const int64_t pieces = (a.columns + V - 1) / V;
    unsigned x = 256;
    while (x > V && int64_t(x) / 2 >= pieces) x /= 2; // V threads for what is left over
    const dim3 block(x, 256 / x);
    const int64_t across = (pieces + x * U - 1) / (x * U),
                  down = (a.rows + block.y - 1) / block.y;
    const dim3 grid(unsigned(across < INT32_MAX ? across : INT32_MAX),
                    unsigned(down < 65535 ? down : 65535));
    rows_kernel<F, S, V, U><<<grid, block, 0, stream>>>(a);
    return launched();
  }
  strided_arguments<F, S> a;
  a.out = reinterpret_cast<O *>(out->data);
  a.attr = attr, a.fault = call->fault;
  for (int k = 0; k < N; k++) {
    const bool host = !in[k] || in[k]->host;
    a.in[k] = host ? nullptr : reinterpret_cast<const S *>(in[k]->data);
    a.value[k] = host ? host_value<T, S>(in[k]) : T(0);
  }
  strided_kernel<F, S>
      <<<blocks_for(s.numel, 256, call->device), 256, 0, stream>>>(a, s);
  return launched();
}

#endif
