// kernels/cuda/fill.cu -- constants and sequences: fill, _arange, _linspace.
#include "kernels/cuda/copy.cuh"
#include "kernels/cuda/elementwise.cuh"

namespace {

// A number as an element of type S, by the rules of copy.cu's convert.
template <class S> S number_as(const mt_attr *value) {
  const double x = value->f;
  if constexpr (std::is_integral<S>::value) {
    constexpr S lo = std::numeric_limits<S>::min(), hi = std::numeric_limits<S>::max();
    if (value->is_int) return S(value->i[0]);
    if (!(x == x)) return S(0);
    return x <= double(lo) ? lo : x >= double(hi) ? hi : S(x);
  } else if constexpr (std::is_same<S, __half>::value)
    return __float2half_rn(value->is_int ? float(value->i[0]) : float(x));
  else if constexpr (std::is_same<S, __nv_bfloat16>::value)
    return __float2bfloat16_rn(value->is_int ? float(value->i[0]) : float(x));
  else
    return value->is_int ? S(value->i[0]) : S(x);
}

// Eight bytes of elements side by side.
mt_status pattern_of(const mt_attr *value, mt_dtype d, uint64_t *pattern) {
  const auto repeat = [&](auto x) {
    for (size_t at = 0; at < 8; at += sizeof x)
      memcpy(reinterpret_cast<char *>(pattern) + at, &x, sizeof x);
    return MT_OK;
  };
  if (d == MT_BOOL)
    return repeat(uint8_t(value->is_int ? value->i[0] != 0 : value->f != 0));
  return with_number(
      d, [&](auto t) { return repeat(number_as<typename decltype(t)::type>(value)); });
}

// head bytes up to a multiple of 16, whole pieces, tail bytes. Each begins at a whole
// element, so that the pattern fits wherever it starts.
__global__ void __launch_bounds__(256)
    fill_kernel(char *to, int head, int64_t pieces, int tail, uint64_t pattern) {
  const uint32_t lo = uint32_t(pattern), hi = uint32_t(pattern >> 32);
  uint4 *body = reinterpret_cast<uint4 *>(to + head);
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < pieces) body[i] = make_uint4(lo, hi, lo, hi);
  if (blockIdx.x > 0) return;
  const char byte = char(pattern >> (threadIdx.x % 8 * 8));
  if (int(threadIdx.x) < head) to[threadIdx.x] = byte;
  if (int(threadIdx.x) < tail) to[head + pieces * 16 + threadIdx.x] = byte;
}

mt_status run_fill(const mt_call *call) {
  mt_view *out = call->out[0];
  const mt_view *const view[1] = {out};
  const space<1> s = make_space(view);
  uint64_t pattern = 0;
  if (s.numel == 0) return MT_OK;
  if (const mt_status status = pattern_of(&call->attr[0], out->dtype, &pattern))
    return status;
  if (s.ndim == 0 || (s.ndim == 1 && s.stride[0][0] == 1)) {
    const int64_t bytes = s.numel * dtype_size(out->dtype);
    const int64_t gap = int64_t(-reinterpret_cast<uintptr_t>(out->data) & 15);
    const int64_t head = gap < bytes ? gap : bytes, pieces = (bytes - head) / 16;
    const int64_t blocks = (pieces + 255) / 256;
    fill_kernel<<<unsigned(blocks > 0 ? blocks : 1), 256, 0, stream_of(call)>>>(
        out->data, int(head), pieces, int((bytes - head) % 16), pattern);
    return launched();
  }
  // anywhere: a copy of a 0-dim value on the host
  mt_view src{};
  src.host = 1, src.dtype = out->dtype;
  src.data = reinterpret_cast<char *>(&pattern);
  return copy_view(call, &src, out);
}

struct sequence {
  bool whole;
  int64_t start_i, step_i;
  double start, step, stop;
  int64_t last; // position of stop; -1: an arange
};

template <class S>
__global__ void sequence_kernel(sequence q, S *out,
                                const __grid_constant__ space<1> s) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < s.numel;
       i += step) {
    int64_t offset;
    seek(s, i, &offset);
    double x = 0;
    if (q.last >= 0) // both ends exact: the second half counts back from stop
      x = i <= q.last / 2 ? __dadd_rn(q.start, __dmul_rn(double(i), q.step))
                          : __dsub_rn(q.stop, __dmul_rn(double(q.last - i), q.step));
    else if (!q.whole)
      x = __dadd_rn(q.start, __dmul_rn(double(i), q.step));
    const int64_t n = q.start_i + i * q.step_i;
    if constexpr (std::is_integral<S>::value)
      out[offset] = S(q.whole ? n : int64_t(x));
    else if constexpr (sizeof(S) == 2)
      out[offset] = store_as<S>(q.whole ? float(n) : float(x));
    else
      out[offset] = q.whole ? S(n) : S(x);
  }
}

mt_status launch_sequence(const mt_call *call, const sequence &q) {
  const mt_view *const view[1] = {call->out[0]};
  const space<1> s = make_space(view, true);
  if (s.numel == 0) return MT_OK;
  return with_number(call->out[0]->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    sequence_kernel<S>
        <<<blocks_for(s.numel, 256, call->device), 256, 0, stream_of(call)>>>(
            q, reinterpret_cast<S *>(call->out[0]->data), s);
    return launched();
  });
}

mt_status run_arange(const mt_call *call) {
  const mt_attr *start = &call->attr[0], *step = &call->attr[1];
  sequence q{};
  q.whole = start->is_int && step->is_int;
  q.start_i = start->i[0], q.step_i = step->i[0];
  q.start = start->is_int ? double(start->i[0]) : start->f;
  q.step = step->is_int ? double(step->i[0]) : step->f;
  q.last = -1;
  return launch_sequence(call, q);
}

mt_status run_linspace(const mt_call *call) {
  const int64_t n = numel(call->out[0]);
  sequence q{};
  q.start = call->attr[0].f, q.stop = call->attr[1].f;
  q.last = n == 1 ? 1 : n - 1; // one element is start
  q.step = (q.stop - q.start) / double(q.last > 0 ? q.last : 1);
  return launch_sequence(call, q);
}

} // namespace

CUDA_ENTRY(fill) = {run_fill, nullptr, MT_ALL_MASK, 0};
CUDA_ENTRY(_arange) = {run_arange, nullptr, MT_FLOAT_MASK | MT_INT_MASK, 0};
CUDA_ENTRY(_linspace) = {run_linspace, nullptr, MT_FLOAT_MASK, 0};
