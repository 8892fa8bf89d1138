// kernels/cuda/many.cu -- steps of optimisers, sums of squares and scaling over many tensors
// in one launch: their addresses and sizes travel in the kernel's argument.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/row_sums.cuh"

namespace {

// Up to `most` tensors a launch; a block takes a piece of one of them.
constexpr int most = 64, arrays = 4, piece = 4096;

struct batch {
  void *p[arrays][most];
  int64_t n[most];
  int first_block[most + 1];
  int count;
};

// Which tensor block b works on, by bisection.
__device__ inline int tensor_of(const batch &q, int b) {
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

template <class T> struct sgd_step {
  T lr, momentum, undampened, weight_decay;
  bool nesterov, first, has_momentum;
  static constexpr int written = 2, used = 3; // parameter, momentum, gradient
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
  T lr, beta1, beta2, epsilon, weight_decay, correction1, root_correction2;
  bool decoupled;
  static constexpr int written = 3, used = 4; // parameter, averages, gradient
  __device__ void run(T *v) const {
    T g = v[3];
    if (decoupled)
      v[0] -= lr * weight_decay * v[0];
    else
      g += weight_decay * v[0];
    v[1] += (g - v[1]) * (T(1) - beta1);
    v[2] = beta2 * v[2] + (T(1) - beta2) * g * g;
    v[0] -= lr / correction1 * v[1] / (sqrt(v[2]) / root_correction2 + epsilon);
  }
};

template <class S, class F>
__global__ void __launch_bounds__(256)
    step_kernel(const __grid_constant__ batch q, F f) {
  using T = compute_t<S>;
  const int t = tensor_of(q, blockIdx.x);
  const int64_t begin = int64_t(int(blockIdx.x) - q.first_block[t]) * piece;
  const int64_t end = begin + piece < q.n[t] ? begin + piece : q.n[t];
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    T v[F::used];
#pragma unroll
    for (int k = 0; k < F::used; k++)
      v[k] = q.p[k][t] ? load_as<T>(static_cast<const S *>(q.p[k][t])[i]) : T(0);
    f.run(v);
#pragma unroll
    for (int k = 0; k < F::written; k++)
      if (q.p[k][t]) static_cast<S *>(q.p[k][t])[i] = store_as<S>(v[k]);
  }
}

template <class T> struct scale_step {
  const void *factor;
  mt_dtype dtype;
  T value; // where factor is NULL
  static constexpr int written = 1, used = 1;
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

// view(k, i): array k of tensor i, or NULL.
template <class S, class F, class V>
mt_status launch_steps(const mt_call *call, int n, const F &f, V view) {
  for (int from = 0; from < n;) {
    batch q{};
    int64_t blocks = 0;
    for (; from < n && q.count < most; from++) {
      const mt_view *first = view(0, from);
      const int64_t count = numel(first);
      if (count == 0) continue;
      for (int k = 0; k < F::used; k++) {
        const mt_view *v = view(k, from);
        if (v && !plain(first, v))
          return cuda_fail_text(
              MT_EUNSUPPORTED,
              "parameters, states and gradients must be contiguous, of "
              "one dtype and shape");
        q.p[k][q.count] = v ? v->data : nullptr;
      }
      const int64_t more = (count + piece - 1) / piece;
      if (q.count > 0 && blocks + more > INT32_MAX) break;
      q.n[q.count] = count;
      q.first_block[q.count++] = int(blocks);
      blocks += more;
    }
    if (q.count == 0) break;
    q.first_block[q.count] = int(blocks);
    step_kernel<S><<<unsigned(blocks), 256, 0, stream_of(call)>>>(q, f);
    if (const mt_status status = launched()) return status;
  }
  return MT_OK;
}

// ---- sum of squares: one block a tensor piece would need scratch; a block walks all ----

template <class O> __global__ void clear_kernel(O *sum) { *sum = O(0); }

template <class S>
__global__ void __launch_bounds__(512)
    square_sum_kernel(const __grid_constant__ batch q, void *sum, mt_dtype out) {
  using T = compute_t<S>;
  double total = 0;
  for (int t = 0; t < q.count; t++) {
    const S *x = static_cast<const S *>(q.p[0][t]);
    for (int64_t i = threadIdx.x; i < q.n[t]; i += blockDim.x) {
      const double v = double(load_as<T>(x[i]));
      total += v * v;
    }
  }
  total = row_sum(total);
  if (threadIdx.x != 0) return;
  if (out == MT_F64)
    *static_cast<double *>(sum) += total;
  else
    *static_cast<float *>(sum) = float(double(*static_cast<float *>(sum)) + total);
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
    const sgd_step<T> f = {T(a[0].f),   T(a[1].f),   T(1 - a[2].f), T(a[3].f),
                           a[4].f != 0, a[5].f != 0, call->nout > n};
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
                            T(a[2].f),
                            T(a[3].f),
                            T(a[4].f),
                            T(a[5].f),
                            T(1 - pow(a[2].f, step)),
                            T(sqrt(1 - pow(a[3].f, step))),
                            a[6].f != 0};
    return launch_steps<S>(call, n, f, view);
  });
}

mt_status cuda_many_square_sum(const mt_call *call) {
  void *sum = call->out[0]->data;
  const cudaStream_t stream = stream_of(call);
  CUDA_TRY(cudaMemsetAsync(sum, 0, size_t(dtype_size(call->out[0]->dtype)), stream));
  for (int from = 0; from < call->nin;) {
    batch q{};
    const mt_dtype d = call->in[from]->dtype;
    for (; from < call->nin && q.count < most && call->in[from]->dtype == d; from++) {
      if (!is_contiguous(call->in[from]))
        return cuda_fail_text(MT_EUNSUPPORTED, "gradients must be contiguous");
      q.p[0][q.count] = call->in[from]->data;
      q.n[q.count++] = numel(call->in[from]);
    }
    const mt_status status = with_float(d, [&](auto t) {
      using S = typename decltype(t)::type;
      square_sum_kernel<S><<<1, 512, 0, stream>>>(q, sum, call->out[0]->dtype);
      return launched();
    });
    if (status != MT_OK) return status;
  }
  return MT_OK;
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
