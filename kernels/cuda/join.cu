// kernels/cuda/join.cu -- copies that choose, put together or turn round: where, cat, flip.
#include "kernels/cuda/copy.cuh"
#include "kernels/cuda/elementwise.cuh"

namespace {

// y = cond ? a : b, elements moved as bits. Inputs are broadcast; numbers stay on the host.
template <class S> struct where_arguments {
  S *out;
  const uint8_t *cond;
  const S *a, *b; // NULL: the value
  S value_a, value_b;
  uint8_t value_cond;
};

template <class S>
__global__ void __launch_bounds__(256)
    where_kernel(where_arguments<S> q, const __grid_constant__ space<4> s) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < s.numel;
       i += step) {
    int64_t offset[4];
    seek(s, i, offset);
    const bool c = q.cond ? q.cond[offset[1]] : q.value_cond;
    q.out[offset[0]] =
        c ? (q.a ? q.a[offset[2]] : q.value_a) : (q.b ? q.b[offset[3]] : q.value_b);
  }
}

template <class S> S bits_of(const mt_view *v) {
  S x{};
  if (v->host) memcpy(&x, v->data, sizeof x);
  return x;
}
template <class S> const S *pointer_of(const mt_view *v) {
  return v->host ? nullptr : reinterpret_cast<const S *>(v->data);
}

template <class S> mt_status launch_where(const mt_call *call, const space<4> &s) {
  const mt_view *c = call->in[0], *a = call->in[1], *b = call->in[2];
  const where_arguments<S> q = {reinterpret_cast<S *>(call->out[0]->data),
                                pointer_of<uint8_t>(c),
                                pointer_of<S>(a),
                                pointer_of<S>(b),
                                bits_of<S>(a),
                                bits_of<S>(b),
                                bits_of<uint8_t>(c)};
  where_kernel<S>
      <<<blocks_for(s.numel, 256, call->device), 256, 0, stream_of(call)>>>(q, s);
  return launched();
}

mt_status run_where(const mt_call *call) {
  const mt_view *const view[4] = {call->out[0], call->in[0], call->in[1], call->in[2]};
  const space<4> s = make_space(view);
  if (s.numel == 0) return MT_OK;
  switch (dtype_size(call->out[0]->dtype)) {
  case 1: return launch_where<uint8_t>(call, s);
  case 2: return launch_where<uint16_t>(call, s);
  case 4: return launch_where<uint32_t>(call, s);
  default: return launch_where<uint64_t>(call, s);
  }
}

// Each input is copied to its slice of y.
mt_status run_cat(const mt_call *call) {
  mt_view slice = *call->out[0];
  const int d = int(call->attr[0].i[0]);
  const int64_t size = dtype_size(slice.dtype);
  for (int i = 0; i < call->nin; i++) {
    const mt_view *x = call->in[i];
    if (numel(x) == 0) continue;
    slice.shape[d] = x->shape[d];
    if (const mt_status status = copy_view(call, x, &slice)) return status;
    slice.data += x->shape[d] * slice.stride[d] * size;
  }
  return MT_OK;
}

// A copy of x seen from the other end.
mt_status run_flip(const mt_call *call) {
  const mt_attr *dims = &call->attr[0];
  mt_view x = *call->in[0];
  const int64_t size = dtype_size(x.dtype);
  if (numel(&x) == 0) return MT_OK;
  for (int k = 0; k < (dims->n < 0 ? x.ndim : dims->n); k++) {
    const int64_t d = dims->n < 0 ? k : dims->i[k];
    if (d >= x.ndim) continue; // dim 1 of a 0-dim tensor
    x.data += (x.shape[d] - 1) * x.stride[d] * size;
    x.stride[d] = -x.stride[d];
  }
  return copy_view(call, &x, call->out[0]);
}

} // namespace

CUDA_ENTRY(where) = {run_where, nullptr, MT_ALL_MASK, 0};
CUDA_ENTRY(cat) = {run_cat, nullptr, MT_ALL_MASK, 0};
CUDA_ENTRY(flip) = {run_flip, nullptr, MT_ALL_MASK, 0};
