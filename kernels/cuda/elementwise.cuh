// kernels/cuda/elementwise.cuh -- one kernel for rows of 16-byte pieces, one for any
// strides; F is the functor of one operator for one element type, made by functors.inc.
#ifndef MT_CUDA_ELEMENTWISE_CUH
#define MT_CUDA_ELEMENTWISE_CUH

#include "kernels/cuda/elementwise_tables.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/space.cuh"

// F::out: what the result is stored as; `same`: as the inputs are.
struct same {};
template <class F, class S>
using out_t = typename std::conditional<std::is_same<typename F::out, same>::value, S,
                                        typename F::out>::type;

template <class T> struct attributes { T at[2]; };

// An input as the row kernel sees it.
template <class T> struct operand {
  const char *p;  // NULL: the value serves for every element
  int64_t row;    // bytes from one row to the next
  uint32_t apart; // bytes from one piece to the next; 0: one element for the whole row
  T value;
};

template <class F> struct row_arguments {
  using T = typename F::type;
  char *out;
  int64_t out_row;
  uint32_t out_apart;
  mt_dtype dtype;       // of the inputs
  uint32_t rows, whole; // pieces of V elements in each
  int left;             // elements of one behind them
  operand<T> in[F::inputs];
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

// Small integers are computed as int32: what that has above their own bits is no part of
// what popcount counts.
template <class F>
__device__ inline void keep_own_bits(typename F::type *v, mt_dtype d) {
  using T = typename F::type;
  if constexpr (F::op == MT_OP_popcount && std::is_integral<T>::value && sizeof(T) == 4)
    v[0] &= d == MT_I32 ? ~0 : d == MT_I16 ? 0xffff : 0xff;
}

// blockDim = (pieces, rows), blockIdx = (.., rows, more rows). A thread has V neighbours of
// a row: more of them at once, and memory delivers less.
template <class F, class S, int V>
__global__ void __launch_bounds__(256)
    rows_kernel(const __grid_constant__ row_arguments<F> a) {
  using T = typename F::type;
  using O = out_t<F, S>;
  constexpr int N = F::inputs;
  const uint32_t c = blockIdx.x * blockDim.x + threadIdx.x;
  const uint32_t r = (blockIdx.z * gridDim.y + blockIdx.y) * blockDim.y + threadIdx.y;
  if (r >= a.rows) return;
  char *to = a.out + r * a.out_row + uint64_t(c) * a.out_apart;
  if (c < a.whole) {
    piece<S, V> in[N];
    T one[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
      const operand<T> &q = a.in[k];
      const char *p = q.p + r * q.row + uint64_t(c) * q.apart;
      one[k] = q.value;
      if (q.apart)
        in[k].load(p, a.dtype);
      else if (q.p)
        one[k] = load_at<T, S>(p, 0, a.dtype);
    }
    T x[N][V];
#pragma unroll
    for (int k = 0; k < N; k++) {
      if (a.in[k].apart)
        in[k].get(x[k], a.dtype);
      else
#pragma unroll
        for (int i = 0; i < V; i++) x[k][i] = one[k];
    }
    decltype(F::run(one, a.attr.at)) y[V];
#pragma unroll
    for (int i = 0; i < V; i++) {
      T v[N];
#pragma unroll
      for (int k = 0; k < N; k++) v[k] = x[k][i];
      check_divisor<F>(v, (int64_t(r) * a.whole + c) * V + int64_t(r) * a.left + i,
                       a.fault);
      keep_own_bits<F>(v, a.dtype);
      y[i] = F::run(v, a.attr.at);
    }
    piece<O, V> out;
    out.set(y, a.dtype);
    out.store(to, a.dtype);
  } else if (c == a.whole) {
#pragma unroll 1
    for (int i = 0; i < a.left; i++) { // what is less than a piece
      T v[N];
#pragma unroll
      for (int k = 0; k < N; k++) {
        const operand<T> &q = a.in[k];
        const char *p = q.p + r * q.row + uint64_t(c) * q.apart;
        v[k] = q.p ? load_at<T, S>(p, q.apart ? i : 0, a.dtype) : q.value;
      }
      check_divisor<F>(v, (int64_t(r) * a.whole + c) * V + int64_t(r) * a.left + i,
                       a.fault);
      keep_own_bits<F>(v, a.dtype);
      store_at<O>(to, i, F::run(v, a.attr.at), a.dtype);
    }
  }
}

template <class F> struct strided_arguments {
  using T = typename F::type;
  void *out;
  const void *in[F::inputs]; // NULL: value
  mt_dtype dtype;            // of the inputs
  T value[F::inputs];
  attributes<T> attr;
  mt_fault *fault;
};

template <class F, class S>
__global__ void __launch_bounds__(256)
    strided_kernel(const __grid_constant__ strided_arguments<F> a,
                   const __grid_constant__ space<F::inputs + 1> s) {
  using T = typename F::type;
  constexpr int N = F::inputs;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < s.numel;
       i += step) {
    int64_t offset[N + 1];
    seek(s, i, offset);
    T v[N];
#pragma unroll
    for (int k = 0; k < N; k++)
      v[k] = a.in[k] ? load_at<T, S>(a.in[k], offset[k + 1], a.dtype) : a.value[k];
    check_divisor<F>(v, i, a.fault);
    keep_own_bits<F>(v, a.dtype);
    store_at<out_t<F, S>>(a.out, offset[0], F::run(v, a.attr.at), a.dtype);
  }
}

// ---- host side ------------------------------------------------------------------------

// A 0-dim value of dtype d on the host; 0 for an input that no formula reads. Values of
// no dtype are moved as bits.
template <class T, class S> T host_value(const mt_view *v, mt_dtype d) {
  if (!v) return T(0);
  const auto read = [&](auto x) {
    memcpy(&x, v->data, sizeof x);
    return x;
  };
  if constexpr (!is_kind<S>)
    return T(read(S()));
  else if constexpr (std::is_same<T, float>::value)
    return d == MT_F16 ? __half2float(read(__half()))
                       : __bfloat162float(read(__nv_bfloat16()));
  else
    return d == MT_I16  ? read(int16_t())
           : d == MT_I8 ? read(int8_t())
                        : read(uint8_t());
}

inline int64_t whole_limit(mt_dtype d, bool largest) {
  const int bits = int(dtype_size(d)) * 8;
  if (d == MT_U8 || d == MT_BOOL) return largest ? UINT8_MAX : 0;
  return largest ? INT64_MAX >> (64 - bits) : INT64_MIN >> (64 - bits);
}

// An attribute of an op on inputs of dtype d.
template <class T> T attribute(const mt_attr *a, mt_dtype d) {
  if constexpr (std::is_floating_point<T>::value)
    return T(a->f);
  else {
    const int64_t lo = whole_limit(d, false), hi = whole_limit(d, true);
    int64_t i = a->i[0];
    if (!a->is_int) {
      if (!(a->f == a->f))
        i = 0;
      else if (a->f >= 0x1p63)
        i = INT64_MAX;
      else
        i = a->f <= -0x1p63 ? INT64_MIN : int64_t(a->f);
    }
    return T(i < lo ? lo : i > hi ? hi : i);
  }
}

// Do rows of V-element pieces serve? Then every view lies side by side, or stands
// still, in the innermost loop, and every row begins at a multiple of V elements.
template <int K>
bool rows_fit(const space<K> &s, const mt_view *const (&view)[K], int V) {
  if (s.ndim > 2 || s.ndim == 0 || s.stride[0][0] != 1) return false;
  if (s.size[0] / V >= UINT32_MAX || (s.ndim == 2 && s.size[1] >= INT32_MAX))
    return false;
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

// S: the class of the inputs' dtype, d.
template <class F, class S>
mt_status launch_elementwise(const mt_call *call, const mt_view *out,
                             const mt_view *const *in, mt_dtype d) {
  using T = typename F::type;
  constexpr int N = F::inputs, V = neighbours<S>::value;
  const mt_view *view[N + 1];
  view[0] = out;
  for (int k = 0; k < N; k++) view[k + 1] = in[k];
  const space<N + 1> s = make_space(view);
  if (s.numel == 0) return MT_OK;
  attributes<T> attr{};
  for (int k = 0; k < elementwise_attributes.of[F::op]; k++)
    attr.at[k] = attribute<T>(&call->attr[k], d);
  const cudaStream_t stream = stream_of(call);
  if (rows_fit(s, view, V)) {
    const int64_t size = dtype_size(d), out_size = dtype_size(out->dtype);
    row_arguments<F> a;
    a.out = out->data, a.out_apart = uint32_t(out_size * V), a.dtype = d;
    a.whole = uint32_t(s.size[0] / V), a.left = int(s.size[0] % V);
    a.rows = s.ndim == 2 ? uint32_t(s.size[1]) : 1;
    a.out_row = s.ndim == 2 ? s.stride[0][1] * out_size : 0;
    a.attr = attr, a.fault = call->fault;
    for (int k = 0; k < N; k++) {
      const bool host = !in[k] || in[k]->host;
      a.in[k] = {host ? nullptr : in[k]->data,
                 s.ndim == 2 ? s.stride[k + 1][1] * size : 0,
                 host ? 0 : uint32_t(s.stride[k + 1][0] * size * V),
                 host ? host_value<T, S>(in[k], d) : T(0)};
    }
    const int64_t pieces = int64_t(a.whole) + (a.left > 0);
    unsigned x = 256;
    while (x > 1 && int64_t(x) / 2 >= pieces) x /= 2;
    unsigned y = 256 / x;
    while (y > 1 && y / 2 >= a.rows) y /= 2;
    const dim3 block(x, y);
    const int64_t down = (int64_t(a.rows) + block.y - 1) / block.y;
    const dim3 grid(unsigned((pieces + x - 1) / x),
                    unsigned(down < 65535 ? down : 65535),
                    unsigned((down + 65534) / 65535));
    return kernel_of<rows_kernel<F, S, V>>::launch({grid, block, stream}, a);
  }
  strided_arguments<F> a;
  a.out = out->data, a.dtype = d;
  a.attr = attr, a.fault = call->fault;
  for (int k = 0; k < N; k++) {
    const bool host = !in[k] || in[k]->host;
    a.in[k] = host ? nullptr : in[k]->data;
    a.value[k] = host ? host_value<T, S>(in[k], d) : T(0);
  }
  strided_kernel<F, typename widest<S>::type>
      <<<blocks_for(s.numel, 256, call->device), 256, 0, stream>>>(a, s);
  return launched();
}

// Floats: F32 serves the half types, too.
template <class F32, class F64>
mt_status launch_float(const mt_call *call, const mt_view *out,
                       const mt_view *const *in, mt_dtype d) {
  switch (d) {
  case MT_F32: return launch_elementwise<F32, float>(call, out, in, d);
  case MT_F64: return launch_elementwise<F64, double>(call, out, in, d);
  case MT_F16:
  case MT_BF16: return launch_elementwise<F32, half_kind>(call, out, in, d);
  default: return cuda_fail_text(MT_EUNSUPPORTED, "no kernel for this dtype");
  }
}

// Integers: I32 serves smaller ones, too; what is stored wraps.
template <class I64, class I32>
mt_status launch_int(const mt_call *call, const mt_view *out, const mt_view *const *in,
                     mt_dtype d) {
  switch (d) {
  case MT_I64: return launch_elementwise<I64, int64_t>(call, out, in, d);
  case MT_I32: return launch_elementwise<I32, int32_t>(call, out, in, d);
  case MT_I16:
  case MT_I8:
  case MT_U8: return launch_elementwise<I32, small_kind>(call, out, in, d);
  default: return cuda_fail_text(MT_EUNSUPPORTED, "no kernel for this dtype");
  }
}

#endif
