// kernels/cuda/layer_norm.cu -- layer_norm over the last dims, and its backward: a block of
// a row, held on chip where it fits; sums over rows in parts that depend on shapes alone.
#include "kernels/cuda/held_rows.cuh"

namespace {

// What normalises a row: (x - about - rest) * scale. about is the mean as T, rest what it
// lacks: x - about is all but exact where the mean is large beside the deviation.
template <class T> struct moments {
  T about, rest, scale;
  __device__ T normal(T x) const { return (x - about - rest) * scale; }
};

// From the sums of x - about and of its square.
template <class T>
__device__ inline moments<T> moments_of(T about, T first, T square, int64_t n,
                                        T epsilon) {
  const T rest = first / T(n), spread = square / T(n) - rest * rest;
  const T variance = spread < T(0) ? T(0) : spread; // NaN stays
  return {about, rest, T(1) / sqrt(variance + epsilon)};
}

template <class S, int V>
__device__ inline moments<compute_t<S>> held_moments(register_row<S, V> &held, int n,
                                                     compute_t<S> epsilon) {
  using T = compute_t<S>;
  T sum = 0, first = 0, square = 0;
  held.each([&](T v) { // 0 beyond n
    sum += v;
    return v;
  });
  const T about = row_sum(sum) / T(n);
#pragma unroll
  for (int k = 0; k < held.pieces; k++)
#pragma unroll
    for (int j = 0; j < V; j++) {
      const T d = held.position(k) < n ? held.at[k][j] - about : T(0);
      first += d, square += d * d;
    }
  first = row_sum(first);
  return moments_of(about, first, row_sum(square), n, epsilon);
}

// Of a row in memory, which is walked twice.
template <class S>
__device__ inline moments<compute_t<S>> walked_moments(const S *x, int64_t n,
                                                       compute_t<S> epsilon) {
  using T = compute_t<S>;
  T sum = 0, first = 0, square = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += load_as<T>(x[i]);
  const T about = row_sum(sum) / T(n);
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const T d = load_as<T>(x[i]) - about;
    first += d, square += d * d;
  }
  first = row_sum(first);
  return moments_of(about, first, row_sum(square), n, epsilon);
}

// Weights and biases, each NULL or of n elements.
template <class S> struct affine {
  const S *w, *b;

  template <int V> __device__ void apply(compute_t<S> (&x)[V], int64_t at) const {
    using T = compute_t<S>;
    if (w) {
      const pack<S, V> p = *reinterpret_cast<const pack<S, V> *>(w + at);
#pragma unroll
      for (int j = 0; j < V; j++) x[j] *= load_as<T>(p.at[j]);
    }
    if (b) {
      const pack<S, V> p = *reinterpret_cast<const pack<S, V> *>(b + at);
#pragma unroll
      for (int j = 0; j < V; j++) x[j] += load_as<T>(p.at[j]);
    }
  }
};

template <class S, int V>
__global__ void __launch_bounds__(512)
    norm_registers_kernel(S *y, const S *x, affine<S> f, int64_t rows, int n,
                          compute_t<S> epsilon) {
  using T = compute_t<S>;
  each_row(rows, [&](int64_t row, bool here) {
    register_row<S, V> held;
    held.load(x + (here ? row : 0) * n, n, T(0));
    const moments<T> m = held_moments(held, n, epsilon);
    held.each([&](T v) { return m.normal(v); });
    if (f.w) held.with(f.w, n, [](T v, T w) { return v * w; });
    if (f.b) held.with(f.b, n, [](T v, T b) { return v + b; });
    if (here) held.store(y + row * n, n);
  });
}

template <class S>
__global__ void __launch_bounds__(1024)
    norm_shared_kernel(S *y, const S *x, affine<S> f, int64_t rows, int64_t n,
                       compute_t<S> epsilon) {
  using T = compute_t<S>;
  constexpr int V = shared_row<S>::V;
  extern __shared__ uint4 room[];
  const shared_row<S> held(room, n);
  held.fetch_all(x + blockIdx.x * n);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    T sum = 0, first = 0, square = 0;
    held.each([&](const pack<S, V> &p) {
#pragma unroll
      for (int j = 0; j < V; j++) sum += load_as<T>(p.at[j]);
    });
    const T about = row_sum(sum) / T(n);
    held.again([&](const pack<S, V> &p) {
#pragma unroll
      for (int j = 0; j < V; j++) {
        const T d = load_as<T>(p.at[j]) - about;
        first += d, square += d * d;
      }
    });
    first = row_sum(first);
    const moments<T> m = moments_of(about, first, row_sum(square), n, epsilon);
    const int64_t next = row + gridDim.x;
    held.replace(y + row * n, next < rows ? x + next * n : nullptr,
                 [&](const pack<S, V> &p, int at) {
                   T v[V];
                   pack<S, V> q;
#pragma unroll
                   for (int j = 0; j < V; j++) v[j] = m.normal(load_as<T>(p.at[j]));
                   f.apply(v, at);
#pragma unroll
                   for (int j = 0; j < V; j++) q.at[j] = store_as<S>(v[j]);
                   return q;
                 });
  }
}

template <class S>
__global__ void __launch_bounds__(512)
    norm_walked_kernel(S *y, const S *x, affine<S> f, int64_t rows, int64_t n,
                       compute_t<S> epsilon) {
  using T = compute_t<S>;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const S *from = x + row * n;
    const moments<T> m = walked_moments(from, n, epsilon);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      T v[1] = {m.normal(load_as<T>(from[i]))};
      f.apply(v, i);
      y[row * n + i] = store_as<S>(v[0]);
    }
  }
}

// in[0] is x; attr: dims, epsilon.
struct norm_shape {
  int64_t rows, n;
};

norm_shape find_shape(const mt_call *call) {
  const mt_view *x = call->in[0];
  const int first = x->ndim - int(call->attr[0].i[0]);
  norm_shape s = {1, 1};
  for (int d = 0; d < x->ndim; d++) (d < first ? s.rows : s.n) *= x->shape[d];
  return s;
}

template <class S> S *data_of(const mt_view *v) {
  return v ? reinterpret_cast<S *>(v->data) : nullptr;
}

mt_status run_forward(const mt_call *call) {
  const mt_view *x = call->in[0];
  const norm_shape s = find_shape(call);
  const cudaStream_t stream = stream_of(call);
  if (s.rows * s.n == 0) return MT_OK;
  return with_float(x->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    using T = compute_t<S>;
    S *y = data_of<S>(call->out[0]);
    const S *from = data_of<const S>(x);
    const affine<S> f = {data_of<const S>(call->in[1]), data_of<const S>(call->in[2])};
    const T epsilon = T(call->attr[1].f);
    const bool whole =
        whole_pieces(s.n, x->dtype, y, from) && aligned16(f.w) && aligned16(f.b);
    held_shape h = {};
    if (whole && is_long<S>(s.n)) {
      if (const mt_status status =
              shared_rows(norm_shared_kernel<S>, norm_shared_kernel<S>, call->device,
                          s.rows, s.n, sizeof(S), &h))
        return status;
    }
    if (h.threads)
      norm_shared_kernel<S>
          <<<h.grid, h.threads, h.bytes, stream>>>(y, from, f, s.rows, s.n, epsilon);
    else if (!held_in_registers<S>(s.rows, s.n, whole, [&](auto v, row_shape r) {
               norm_registers_kernel<S, v><<<r.grid, r.block, 0, stream>>>(
                   y, from, f, s.rows, int(s.n), epsilon);
             }))
      norm_walked_kernel<S>
          <<<blocks_of(s.rows), 512, 0, stream>>>(y, from, f, s.rows, s.n, epsilon);
    return launched();
  });
}

// ---- backward ---------------------------------------------------------------------------
// With h the normalised x and v = dy * w: dx = scale * (v - mean(v) - h * mean(v h)). Each
// row's moments are left for the sums over rows. dx NULL: only they are wanted.
template <class S, int V>
__global__ void __launch_bounds__(512)
    norm_backward_registers_kernel(S *dx, moments<compute_t<S>> *kept, const S *x,
                                   const S *dy, affine<S> f, int64_t rows, int n,
                                   compute_t<S> epsilon) {
  using T = compute_t<S>;
  each_row(rows, [&](int64_t row, bool here) {
    const int64_t at = (here ? row : 0) * n;
    register_row<S, V> h, v;
    h.load(x + at, n, T(0));
    v.load(dy + at, n, T(0));
    const moments<T> m = held_moments(h, n, epsilon);
    if (here && kept && threadIdx.x == 0) kept[row] = m;
    if (!dx) return;
    T sum = 0, product = 0;
    if (f.w) v.with(f.w, n, [](T g, T w) { return g * w; }); // beyond n: 0, or NaN
    h.each([&](T u) { return m.normal(u); });
#pragma unroll
    for (int k = 0; k < h.pieces; k++)
#pragma unroll
      for (int j = 0; j < V; j++)
        if (h.position(k) < n) sum += v.at[k][j], product += v.at[k][j] * h.at[k][j];
    sum = row_sum(sum) / T(n), product = row_sum(product) / T(n);
#pragma unroll
    for (int k = 0; k < h.pieces; k++)
#pragma unroll
      for (int j = 0; j < V; j++)
        v.at[k][j] = m.scale * (v.at[k][j] - sum - h.at[k][j] * product);
    if (here) v.store(dx + at, n);
  });
}

template <class S>
__global__ void __launch_bounds__(512)
    norm_backward_walked_kernel(S *dx, moments<compute_t<S>> *kept, const S *x,
                                const S *dy, affine<S> f, int64_t rows, int64_t n,
                                compute_t<S> epsilon) {
  using T = compute_t<S>;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const S *from = x + row * n, *g = dy + row * n;
    const moments<T> m = walked_moments(from, n, epsilon);
    if (kept && threadIdx.x == 0) kept[row] = m;
    if (!dx) continue;
    T sum = 0, product = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      T v[1] = {load_as<T>(g[i])};
      f.apply(v, i);
      sum += v[0], product += v[0] * m.normal(load_as<T>(from[i]));
    }
    sum = row_sum(sum) / T(n), product = row_sum(product) / T(n);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      T v[1] = {load_as<T>(g[i])};
      f.apply(v, i);
      dx[row * n + i] =
          store_as<S>(m.scale * (v[0] - sum - m.normal(load_as<T>(from[i])) * product));
    }
  }
}

// Sums over a part of the rows: of dy * h (dw) and of dy (db), as [part][2][n]. A thread has
// V columns; those of one x share the rows. blockDim = (32, 8).
constexpr int sum_rows = 8;
template <class S, int V>
__global__ void __launch_bounds__(256)
    norm_sums_kernel(double *sums, const moments<compute_t<S>> *kept, const S *x,
                     const S *dy, int64_t rows, int64_t n) {
  using T = compute_t<S>;
  __shared__ double held[sum_rows][V][32];
  const int64_t column = (int64_t(blockIdx.x) * 32 + threadIdx.x) * V;
  const int64_t begin = blockIdx.y * rows / gridDim.y,
                end = (blockIdx.y + 1) * rows / gridDim.y;
  double sum[2][V] = {};
  if (column < n) {
#pragma unroll 2
    for (int64_t i = begin + threadIdx.y; i < end; i += sum_rows) {
      const moments<T> m = kept[i];
      const auto a = *reinterpret_cast<const pack<S, V> *>(x + i * n + column);
      const auto b = *reinterpret_cast<const pack<S, V> *>(dy + i * n + column);
#pragma unroll
      for (int j = 0; j < V; j++) {
        const T g = load_as<T>(b.at[j]);
        sum[0][j] += double(g * m.normal(load_as<T>(a.at[j])));
        sum[1][j] += double(g);
      }
    }
  }
  for (int which = 0; which < 2; which++) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < V; j++) held[threadIdx.y][j][threadIdx.x] = sum[which][j];
    __syncthreads();
    if (threadIdx.y < V && column < n) {
      double total = 0;
      for (int y = 0; y < sum_rows; y++) total += held[y][threadIdx.y][threadIdx.x];
      sums[(int64_t(blockIdx.y) * 2 + which) * n + column + threadIdx.y] = total;
    }
  }
}

// blockDim = (32, 8): a column an x, the parts shared among the others.
template <class S>
__global__ void __launch_bounds__(256)
    norm_join_kernel(S *dw, S *db, const double *sums, int parts, int64_t n) {
  __shared__ double held[sum_rows][32];
  const int64_t column = int64_t(blockIdx.x) * 32 + threadIdx.x;
  S *out = blockIdx.y == 0 ? dw : db;
  double sum = 0;
  if (!out) return;
  if (column < n)
    for (int k = threadIdx.y; k < parts; k += sum_rows)
      sum += sums[(int64_t(k) * 2 + blockIdx.y) * n + column];
  held[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= n) return;
  for (int y = 1; y < sum_rows; y++) sum += held[y][threadIdx.x];
  out[column] = store_as<S>(compute_t<S>(sum));
}

constexpr int most_parts = 256;

size_t kept_bytes(const norm_shape &s) {
  return (size_t(s.rows) * sizeof(moments<double>) + 15) / 16 * 16;
}

int parts_of(const norm_shape &s, int device) {
  const int64_t across = (s.n + 127) / 128;
  int64_t parts = int64_t(multiprocessors(device)) * 8 / across;
  parts = parts > s.rows / 32 ? s.rows / 32 : parts;
  return int(parts < 1 ? 1 : parts > most_parts ? most_parts : parts);
}

size_t backward_scratch(const mt_call *call) {
  const norm_shape s = find_shape(call);
  if (s.n == 0 || (!call->out[1] && !call->out[2])) return 0;
  return kept_bytes(s) +
         size_t(parts_of(s, call->device)) * 2 * size_t(s.n) * sizeof(double);
}

mt_status run_backward(const mt_call *call) {
  const mt_view *x = call->in[0];
  const norm_shape s = find_shape(call);
  const cudaStream_t stream = stream_of(call);
  if (s.n == 0) return MT_OK;
  return with_float(x->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    using T = compute_t<S>;
    constexpr int V = 16 / int(sizeof(S));
    S *dx = data_of<S>(call->out[0]), *dw = data_of<S>(call->out[1]),
      *db = data_of<S>(call->out[2]);
    const S *from = data_of<const S>(x), *dy = data_of<const S>(call->in[1]);
    const affine<S> f = {data_of<const S>(call->in[2]), nullptr};
    const T epsilon = T(call->attr[1].f);
    auto *kept = dw || db ? static_cast<moments<T> *>(call->scratch) : nullptr;
    const bool whole =
        whole_pieces(s.n, x->dtype, dx, from) && aligned16(dy) && aligned16(f.w);
    if (s.rows > 0) {
      if (!held_in_registers<S>(s.rows, s.n, whole, [&](auto v, row_shape r) {
            norm_backward_registers_kernel<S, v><<<r.grid, r.block, 0, stream>>>(
                dx, kept, from, dy, f, s.rows, int(s.n), epsilon);
          }))
        norm_backward_walked_kernel<S><<<blocks_of(s.rows), 512, 0, stream>>>(
            dx, kept, from, dy, f, s.rows, s.n, epsilon);
      if (const mt_status status = launched()) return status;
    }
    if (!kept) return MT_OK;
    const int parts = parts_of(s, call->device);
    auto *sums =
        reinterpret_cast<double *>(static_cast<char *>(call->scratch) + kept_bytes(s));
    const int width = whole ? V : 1;
    const dim3 grid(unsigned((s.n + 32 * width - 1) / (32 * width)), unsigned(parts));
    if (whole)
      norm_sums_kernel<S, V>
          <<<grid, dim3(32, sum_rows), 0, stream>>>(sums, kept, from, dy, s.rows, s.n);
    else
      norm_sums_kernel<S, 1>
          <<<grid, dim3(32, sum_rows), 0, stream>>>(sums, kept, from, dy, s.rows, s.n);
    if (const mt_status status = launched()) return status;
    norm_join_kernel<S>
        <<<dim3(unsigned((s.n + 31) / 32), 2), dim3(32, sum_rows), 0, stream>>>(
            dw, db, sums, parts, s.n);
    return launched();
  });
}

} // namespace

CUDA_ENTRY(layer_norm) = {run_forward, nullptr, MT_FLOAT_MASK, 7};
CUDA_ENTRY(layer_norm_backward) = {run_backward, backward_scratch, MT_FLOAT_MASK, 7};
