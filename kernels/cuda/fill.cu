// kernels/cuda/fill.cu -- constants and sequences: fill, _arange, _linspace.
#include "kernels/cuda/elementwise.cuh"

mt_status cuda_copy(const mt_call *call);

namespace {

// The value goes along as a 0-dim view on the host, which the copy converts.
mt_status run_fill(const mt_call *call) {
  const mt_attr *value = &call->attr[0];
  mt_view src{};
  src.host = 1;
  src.dtype = value->is_int ? MT_I64 : MT_F64;
  src.data =
      const_cast<char *>(value->is_int ? reinterpret_cast<const char *>(&value->i[0])
                                       : reinterpret_cast<const char *>(&value->f));
  const mt_view *const in[1] = {&src};
  mt_call copy = *call;
  copy.nin = 1, copy.in = in;
  return cuda_copy(&copy);
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
