// kernels/cuda/copy.cu -- copies between views of any strides and dtypes: rows of 16-byte
// pieces, tiles through shared memory where dims change places, else element by element.
#include "kernels/cuda/copy.cuh"
#include "kernels/cuda/elementwise.cuh"

namespace {

// ---- conversion, as on the CPU: truncates, saturates, NaN gives 0; bool is != 0 --------
struct truth { // bool as a target; as a source it is a byte of 0 or 1
  uint8_t value;
};

template <class To, class From> __device__ inline To convert(From x) {
  if constexpr (std::is_same<To, truth>::value)
    return truth{uint8_t(x != From(0))};
  else if constexpr (std::is_same<To, __half>::value)
    return __float2half_rn(float(x));
  else if constexpr (std::is_same<To, __nv_bfloat16>::value)
    return __float2bfloat16_rn(float(x));
  else if constexpr (std::is_floating_point<From>::value &&
                     std::is_integral<To>::value) {
    constexpr To lo = std::numeric_limits<To>::min(),
                 hi = std::numeric_limits<To>::max();
    if (!(x == x)) return To(0);
    if (x <= From(lo)) return lo;
    if (x >= From(hi)) return hi;
    return To(x);
  } else
    return To(x);
}

template <class To, class From> struct convert_fn {
  using type = From;
  using out = To;
  static constexpr int inputs = 1, op = MT_OP_neg; // no attributes
  static constexpr bool divides = false;
  static __device__ To run(const From *v, const From *) { return convert<To>(v[0]); }
};

// ---- tiles ------------------------------------------------------------------------------
// dst runs along its dim 0 and src along its dim `across`: a tile of both goes through
// shared memory, so that both sides are read and written in runs. Dims: the space's, with
// 0 and `across` cut into tiles and the others counted by blockIdx.y.
constexpr int tile = 64;

struct tile_arguments {
  int across;
  int64_t src_0, dst_across; // element strides: of src along dim 0, of dst along across
  int64_t size_0, size_across, others;
  int nothers;
  int64_t size[MT_MAX_DIMS], dst[MT_MAX_DIMS], src[MT_MAX_DIMS];
};

// S: an unsigned integer of the element's size; V elements are read and written at once.
template <class S, int V>
__global__ void __launch_bounds__(256)
    transpose_tile_kernel(S *out, const S *in,
                          const __grid_constant__ tile_arguments a) {
  constexpr int wide = tile / V, high = 256 / wide; // threads along a run, runs at once
  __shared__ S held[tile][tile + (sizeof(S) >= 4 ? 1 : 4 / sizeof(S))];
  const int tx = threadIdx.x % wide * V, ty = threadIdx.x / wide;
  const int64_t across_tiles = (a.size_across + tile - 1) / tile;
  const int64_t tiles = (a.size_0 + tile - 1) / tile * across_tiles;
  for (int64_t z = blockIdx.y; z < a.others; z += gridDim.y) {
    int64_t rest = z;
    const S *src = in;
    S *dst = out;
    for (int d = 0; d < a.nothers; d++) {
      const int64_t q = rest / a.size[d], r = rest - q * a.size[d];
      src += r * a.src[d], dst += r * a.dst[d];
      rest = q;
    }
    for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
      const int64_t x0 = t / across_tiles * tile, y0 = t % across_tiles * tile;
      pack<S, V> p[tile / high];
#pragma unroll
      for (int j = 0; j < tile / high; j++) { // a position in dim 0 is a run of src
        const int64_t x = x0 + j * high + ty, y = y0 + tx;
        if (x < a.size_0 && y < a.size_across)
          p[j] = *reinterpret_cast<const pack<S, V> *>(src + x * a.src_0 + y);
      }
#pragma unroll
      for (int j = 0; j < tile / high; j++)
#pragma unroll
        for (int i = 0; i < V; i++) held[j * high + ty][tx + i] = p[j].at[i];
      __syncthreads();
#pragma unroll
      for (int j = 0; j < tile / high; j++) {
        const int64_t x = x0 + tx, y = y0 + j * high + ty;
        pack<S, V> q;
#pragma unroll
        for (int i = 0; i < V; i++) q.at[i] = held[tx + i][j * high + ty];
        if (x < a.size_0 && y < a.size_across)
          *reinterpret_cast<pack<S, V> *>(dst + y * a.dst_across + x) = q;
      }
      __syncthreads();
    }
  }
}

// May both sides be taken V elements at a time?
template <class S, int V>
bool tiles_aligned(const tile_arguments &a, const void *out, const void *in) {
  if ((reinterpret_cast<uintptr_t>(out) | reinterpret_cast<uintptr_t>(in)) %
      (V * sizeof(S)))
    return false;
  if (a.size_0 % V || a.size_across % V || a.src_0 % V || a.dst_across % V)
    return false;
  for (int d = 0; d < a.nothers; d++)
    if (a.src[d] % V || a.dst[d] % V) return false;
  return true;
}

// Is this a copy whose sides run along different dims?
bool transposes(const space<2> &s, tile_arguments *a) {
  if (s.ndim < 2 || s.stride[0][0] != 1 || s.stride[1][0] == 1) return false;
  a->across = -1;
  for (int d = 1; d < s.ndim; d++)
    if (s.stride[1][d] == 1) a->across = d;
  if (a->across < 0 || s.size[0] < 8 || s.size[a->across] < 8) return false;
  a->src_0 = s.stride[1][0], a->dst_across = s.stride[0][a->across];
  a->size_0 = s.size[0], a->size_across = s.size[a->across];
  a->others = 1, a->nothers = 0;
  for (int d = 1; d < s.ndim; d++) {
    if (d == a->across) continue;
    a->size[a->nothers] = s.size[d];
    a->dst[a->nothers] = s.stride[0][d], a->src[a->nothers] = s.stride[1][d];
    a->nothers++;
    a->others *= s.size[d];
  }
  return true;
}

template <class S>
mt_status launch_tiles(const mt_call *call, const mt_view *out, const mt_view *in,
                       const tile_arguments &a) {
  const int64_t tiles =
      (a.size_0 + tile - 1) / tile * ((a.size_across + tile - 1) / tile);
  const dim3 grid(unsigned(tiles < 1 << 20 ? tiles : 1 << 20),
                  unsigned(a.others < 65535 ? a.others : 65535));
  // 8 bytes at a time: with 16, memory delivers less
  constexpr int V = sizeof(S) == 8 ? 1 : sizeof(S) == 4 ? 2 : 4;
  S *to = reinterpret_cast<S *>(out->data);
  const S *from = reinterpret_cast<const S *>(in->data);
  if (tiles_aligned<S, V>(a, to, from))
    transpose_tile_kernel<S, V><<<grid, 256, 0, stream_of(call)>>>(to, from, a);
  else
    transpose_tile_kernel<S, 1><<<grid, 256, 0, stream_of(call)>>>(to, from, a);
  return launched();
}

// Equal dtypes: bytes are moved, whatever they mean.
template <class S>
mt_status copy_bits(const mt_call *call, const mt_view *out, const mt_view *in) {
  const mt_view *const view[2] = {out, in};
  const space<2> s = make_space(view);
  tile_arguments a;
  if (s.numel == 0) return MT_OK;
  if (!in->host && transposes(s, &a)) return launch_tiles<S>(call, out, in, a);
  return launch_elementwise<convert_fn<S, S>, S>(call, out, &in, in->dtype);
}

template <class To>
mt_status copy_to(const mt_call *call, const mt_view *out, const mt_view *in) {
  const mt_dtype d = in->dtype;
  if (d == MT_BOOL)
    return launch_elementwise<convert_fn<To, uint8_t>, uint8_t>(call, out, &in, d);
  if (MT_IS_FLOAT(d))
    return launch_float<convert_fn<To, float>, convert_fn<To, double>>(call, out, &in,
                                                                       d);
  return launch_int<convert_fn<To, int64_t>, convert_fn<To, int32_t>>(call, out, &in,
                                                                      d);
}

mt_status copy_same(const mt_call *call, const mt_view *out, const mt_view *in) {
  if (!in->host && is_contiguous(out) && is_contiguous(in)) {
    const size_t bytes = size_t(numel(out) * dtype_size(out->dtype));
    if (bytes > 0)
      CUDA_TRY(cudaMemcpyAsync(out->data, in->data, bytes, cudaMemcpyDeviceToDevice,
                               stream_of(call)));
    return MT_OK;
  }
  switch (dtype_size(out->dtype)) {
  case 1: return copy_bits<uint8_t>(call, out, in);
  case 2: return copy_bits<uint16_t>(call, out, in);
  case 4: return copy_bits<uint32_t>(call, out, in);
  default: return copy_bits<uint64_t>(call, out, in);
  }
}

} // namespace

mt_status cuda_copy(const mt_call *call) {
  const mt_view *in = call->in[0], *out = call->out[0];
  if (numel(out) == 0) return MT_OK;
  if (in->dtype == out->dtype) return copy_same(call, out, in);
  if (out->dtype == MT_BOOL) return copy_to<truth>(call, out, in);
  return with_number(out->dtype, [&](auto t) {
    return copy_to<typename decltype(t)::type>(call, out, in);
  });
}

CUDA_ENTRY(clone) = {cuda_copy, nullptr, MT_ALL_MASK, 0};
CUDA_ENTRY(_cast) = {cuda_copy, nullptr, MT_ALL_MASK, 0};
