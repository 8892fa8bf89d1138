// kernels/cuda/many.cu -- steps of optimisers, sums of squares and scaling over many tensors
// in one launch: their addresses and sizes travel in the kernel's argument.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/row_sums.cuh"
#include "kernels/graphs.h"

namespace {

// Tensors of a launch: 32,764 bytes is the most that an argument may have. A few tensors
// have a smaller one, since all of it is copied at each launch.
constexpr int few = 32, most = 800;
constexpr int piece = 4096;                   // elements, the work of a block
constexpr int64_t longest = int64_t(1) << 31; // elements of an entry; more take several

// Array k of entry t is p[k][t], or NULL.
template <int arrays, int room> struct batch {
  void *p[arrays][room];
  uint32_t n[room];
  uint32_t first_block[room];
  int count;
  bool aligned; // all to 16 bytes
};

// Which entry block b works on, by bisection.
template <class B> __device__ inline int entry_of(const B &q, unsigned b) {
  int lo = 0, hi = q.count;
  while (hi - lo > 1) {
    const int middle = (lo + hi) / 2;
    if (q.first_block[middle] <= b)
      lo = middle;
    else
      hi = middle;
  }
  return lo;
}

// Where the replays of a graph find what was a number when it was captured, or NULL.
const double *slot_of(const mt_attr &a) {
  return a.is_int == MT_ATTR_SLOT ? reinterpret_cast<const double *>(a.i[0]) : nullptr;
}

template <class T> struct sgd_step {
  T lr, momentum, undampened, weight_decay;
  bool nesterov, first, has_momentum;
  const double *lr_slot;
  static constexpr int written = 2, used = 3; // parameter, momentum, gradient
  __device__ void settle() {
    if (lr_slot) lr = T(*lr_slot);
  }
  __device__ void run(T *v) const {
    T g = v[2] + weight_decay * v[0];
    if (has_momentum) {
      v[1] = first ? g : momentum * v[1] + undampened * g;
      g = nesterov ? g + momentum * v[1] : v[1];
    }
    v[0] -= lr * g;
  }
};

template <class T> struct adam_step {
  T lr, rest1, beta2, rest2, epsilon, weight_decay; // rest: 1 - beta
  T correction1, root_correction2;
  bool decoupled;
  double beta[2];
  const double *step_slot, *lr_slot;
  static constexpr int written = 3, used = 4; // parameter, averages, gradient
  __device__ void settle() {
    if (lr_slot) lr = T(*lr_slot);
    if (!step_slot) return;
    __shared__ double rest[2]; // 1 - beta^step, each by a warp's first thread
    if (threadIdx.x % 32 == 0 && threadIdx.x < 64)
      rest[threadIdx.x / 32] = 1 - pow(beta[threadIdx.x / 32], *step_slot);
    __syncthreads();
    correction1 = T(rest[0]), root_correction2 = T(sqrt(rest[1]));
  }
  __device__ void run(T *v) const {
    T g = v[3];
    if (decoupled)
      v[0] -= lr * weight_decay * v[0];
    else
      g += weight_decay * v[0];
    v[1] += (g - v[1]) * rest1;
    v[2] = beta2 * v[2] + rest2 * g * g;
    v[0] -= lr / correction1 * v[1] / (sqrt(v[2]) / root_correction2 + epsilon);
  }
};

template <class S, int n> struct alignas(n * sizeof(S)) vector_of { S v[n]; };

// n elements of all arrays from element i on.
template <int n, class S, class F, class B>
__device__ inline void step(const B &q, int t, int64_t i, const F &f) {
  using T = compute_t<S>;
  using V = vector_of<S, n>;
  V held[F::used];
#pragma unroll
  for (int k = 0; k < F::used; k++)
    if (q.p[k][t])
      held[k] = *reinterpret_cast<const V *>(static_cast<const S *>(q.p[k][t]) + i);
    else
      held[k] = {};
#pragma unroll
  for (int e = 0; e < n; e++) {
    T v[F::used];
#pragma unroll
    for (int k = 0; k < F::used; k++) v[k] = load_as<T>(held[k].v[e]);
    f.run(v);
#pragma unroll
    for (int k = 0; k < F::written; k++) held[k].v[e] = store_as<S>(v[k]);
  }
#pragma unroll
  for (int k = 0; k < F::written; k++)
    if (q.p[k][t]) *reinterpret_cast<V *>(static_cast<S *>(q.p[k][t]) + i) = held[k];
}

template <class S, class F, class B>
__global__ void __launch_bounds__(256) step_kernel(const __grid_constant__ B q, F f) {
  constexpr int wide = 16 / sizeof(S);
  f.settle();
  const int t = entry_of(q, blockIdx.x);
  const int64_t begin = int64_t(blockIdx.x - q.first_block[t]) * piece;
  const int64_t end = begin + piece < q.n[t] ? begin + piece : q.n[t];
  int64_t i = begin + threadIdx.x;
  if (q.aligned) {
    const int64_t vectors = (end - begin) / wide;
    for (int64_t j = threadIdx.x; j < vectors; j += blockDim.x)
      step<wide, S>(q, t, begin + j * wide, f);
    i += vectors * wide;
  }
  for (; i < end; i += blockDim.x) step<1, S>(q, t, i, f);
}

template <class T> struct scale_step {
  const void *factor;
  mt_dtype dtype;
  T value; // where factor is NULL
  static constexpr int written = 1, used = 1;
  __device__ void settle() {}
  __device__ void run(T *v) const {
    T f = value;
    if (factor && dtype == MT_F64)
      f = T(*static_cast<const double *>(factor));
    else if (factor)
      f = T(*static_cast<const float *>(factor));
    v[0] *= f;
  }
};

bool plain(const mt_view *a, const mt_view *b) {
  if (!is_contiguous(a) || (b && !is_contiguous(b))) return false;
  return !b || (a->dtype == b->dtype && numel(a) == numel(b));
}

// Where a list of tensors has been read up to.
struct place {
  int tensor;
  int64_t element; // of it
};

// Fill q with the next entries; view(k, i): array k of tensor i, or NULL. *blocks: what
// they take, 0 at the end. False: not plain.
template <class B, class V>
bool gather(B *q, unsigned *blocks, place *at, int n, int64_t bytes, V view) {
  constexpr int arrays = sizeof q->p / sizeof q->p[0],
                room = sizeof q->n / sizeof q->n[0];
  int64_t sum = 0;
  q->count = 0, q->aligned = true;
  while (at->tensor < n && q->count < room) {
    const mt_view *first = view(0, at->tensor);
    const int64_t left = numel(first) - at->element;
    const int64_t now = std::min(left, longest), more = (now + piece - 1) / piece;
    for (int k = 0; k < arrays && now > 0; k++) {
      const mt_view *v = view(k, at->tensor);
      if (v && !plain(first, v)) return false;
      char *data = v ? v->data + at->element * bytes : nullptr;
      q->p[k][q->count] = data;
      q->aligned = q->aligned && aligned16(data);
    }
    if (now > 0)
      q->n[q->count] = uint32_t(now), q->first_block[q->count++] = uint32_t(sum);
    sum += more;
    if (now < left)
      at->element += now;
    else
      *at = {at->tensor + 1, 0};
  }
  *blocks = unsigned(sum);
  return true;
}

mt_status not_plain() {
  return cuda_fail_text(MT_EUNSUPPORTED,
                        "parameters, states and gradients must be contiguous, of one "
                        "dtype and shape");
}

template <int room, class S, class F, class V>
mt_status launch_in_batches(const mt_call *call, int n, const F &f, V view) {
  batch<F::used, room> q;
  static_assert(sizeof q + sizeof f <= 32764, "too long for an argument");
  place at = {};
  for (;;) {
    unsigned blocks;
    if (!gather(&q, &blocks, &at, n, sizeof(S), view)) return not_plain();
    if (blocks == 0) return MT_OK;
    step_kernel<S><<<blocks, 256, 0, stream_of(call)>>>(q, f);
    if (const mt_status status = launched()) return status;
  }
}

template <class S, class F, class V>
mt_status launch_steps(const mt_call *call, int n, const F &f, V view) {
  return n <= few ? launch_in_batches<few, S>(call, n, f, view)
                  : launch_in_batches<most, S>(call, n, f, view);
}

// ---- sum of squares: a part a block, then the parts by one block ------------------------

template <class S, class B>
__global__ void __launch_bounds__(256)
    square_parts_kernel(double *parts, const __grid_constant__ B q, unsigned pieces) {
  using T = compute_t<S>;
  double total = 0;
  for (unsigned b = blockIdx.x; b < pieces; b += gridDim.x) {
    const int t = entry_of(q, b);
    const S *x = static_cast<const S *>(q.p[0][t]);
    const int64_t begin = int64_t(b - q.first_block[t]) * piece;
    const int64_t end = begin + piece < q.n[t] ? begin + piece : q.n[t];
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
      const double v = double(load_as<T>(x[i]));
      total += v * v;
    }
  }
  total = row_sum(total);
  if (threadIdx.x == 0) parts[blockIdx.x] = total;
}

__global__ void __launch_bounds__(256)
    add_parts_kernel(void *sum, const double *parts, unsigned n, bool wide, bool more) {
  double total = 0;
  for (unsigned i = threadIdx.x; i < n; i += blockDim.x) total += parts[i];
  total = row_sum(total);
  if (threadIdx.x != 0) return;
  if (wide)
    *static_cast<double *>(sum) = total + (more ? *static_cast<double *>(sum) : 0);
  else
    *static_cast<float *>(sum) =
        float(total + (more ? double(*static_cast<float *>(sum)) : 0));
}

template <int room, class S>
mt_status launch_square_sum(const mt_call *call, void *sum, bool wide) {
  auto *parts = static_cast<double *>(call->scratch);
  const unsigned most_parts = unsigned(call->scratch_bytes / sizeof *parts);
  batch<1, room> q;
  place at = {};
  auto view = [&](int, int i) { return call->in[i]; };
  for (bool more = false;; more = true) {
    unsigned blocks;
    if (!gather(&q, &blocks, &at, call->nin, sizeof(S), view)) return not_plain();
    if (blocks == 0 && more) return MT_OK;
    const unsigned n = std::min(blocks, most_parts);
    if (n > 0) square_parts_kernel<S><<<n, 256, 0, stream_of(call)>>>(parts, q, blocks);
    if (const mt_status status = launched()) return status;
    add_parts_kernel<<<1, 256, 0, stream_of(call)>>>(sum, parts, n, wide, more);
    if (const mt_status status = launched()) return status;
  }
}

} // namespace

mt_status cuda_many_sgd(const mt_call *call) {
  const mt_attr *a = call->attr;
  const int n = call->nin;
  if (n == 0) return MT_OK;
  auto view = [&](int k, int i) -> const mt_view * {
    if (k == 2) return call->in[i];
    return k == 0 ? call->out[i] : call->nout > n ? call->out[n + i] : nullptr;
  };
  return with_float(call->out[0]->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    using T = compute_t<S>;
    const sgd_step<T> f = {T(a[0].f),   T(a[1].f),   T(1 - a[2].f),  T(a[3].f),
                           a[4].f != 0, a[5].f != 0, call->nout > n, slot_of(a[0])};
    return launch_steps<S>(call, n, f, view);
  });
}

mt_status cuda_many_adam(const mt_call *call) {
  const mt_attr *a = call->attr;
  const int n = call->nin;
  if (n == 0) return MT_OK;
  const double step = a[0].f;
  auto view = [&](int k, int i) -> const mt_view * {
    return k == 3 ? call->in[i] : call->out[k * n + i];
  };
  return with_float(call->out[0]->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    using T = compute_t<S>;
    const adam_step<T> f = {T(a[1].f),
                            T(1 - a[2].f),
                            T(a[3].f),
                            T(1 - a[3].f),
                            T(a[4].f),
                            T(a[5].f),
                            T(1 - pow(a[2].f, step)),
                            T(sqrt(1 - pow(a[3].f, step))),
                            a[6].f != 0,
                            {a[2].f, a[3].f},
                            slot_of(a[0]),
                            slot_of(a[1])};
    return launch_steps<S>(call, n, f, view);
  });
}

mt_status cuda_many_square_sum(const mt_call *call) {
  void *sum = call->out[0]->data;
  const bool wide = call->out[0]->dtype == MT_F64;
  const mt_dtype dtype = call->nin > 0 ? call->in[0]->dtype : MT_F32;
  return with_float(dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    return call->nin <= few ? launch_square_sum<few, S>(call, sum, wide)
                            : launch_square_sum<most, S>(call, sum, wide);
  });
}

mt_status cuda_many_scale(const mt_call *call) {
  const mt_view *factor = call->in[0];
  if (call->nout == 0) return MT_OK;
  if (!factor->host && factor->dtype != MT_F32 && factor->dtype != MT_F64)
    return cuda_fail_text(MT_EUNSUPPORTED, "the factor must be float32 or float64");
  auto view = [&](int, int i) -> const mt_view * { return call->out[i]; };
  return with_float(call->out[0]->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    using T = compute_t<S>;
    scale_step<T> f = {factor->host ? nullptr : factor->data, factor->dtype, T(1)};
    if (factor->host)
      f.value = factor->dtype == MT_F64 ? T(*reinterpret_cast<double *>(factor->data))
                                        : T(*reinterpret_cast<float *>(factor->data));
    return launch_steps<S>(call, call->nout, f, view);
  });
}
