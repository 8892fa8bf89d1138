// kernels/cuda/lu.cu -- square matrices by Gaussian elimination with partial pivoting:
// inverses, solutions, determinants. Small matrices: a block each, in shared memory; larger
// ones: panels of columns in global memory, the whole batch at once.
#include "kernels/cuda/elements.cuh"

namespace {

// a x = b for each of a batch of matrices (n x n); b (n x m), or NULL: the identity. For a
// determinant there is no right side: m = 0.
struct linear_system {
  const void *a, *b;
  void *x;
  void *result[3]; // the determinant, its sign, the logarithm of its size, or NULL
  int64_t count;
  int n, m, op;
  mt_fault *fault;
};

// ---- pivots -----------------------------------------------------------------------------

// A candidate for a pivot; NaN is the largest.
template <class T> struct candidate {
  T size;
  int row;
};
template <class T>
__device__ inline candidate<T> better(const candidate<T> &a, const candidate<T> &b) {
  const bool nan_a = a.size != a.size, nan_b = b.size != b.size;
  const bool equal = a.size == b.size || (nan_a && nan_b);
  return equal ? (b.row < a.row ? b : a) : nan_b || (b.size > a.size && !nan_a) ? b : a;
}
template <class T> __device__ inline candidate<T> best_of_warp(candidate<T> c) {
#pragma unroll
  for (int far = 16; far > 0; far /= 2)
    c = better(c,
               {__shfl_xor_sync(~0u, c.size, far), __shfl_xor_sync(~0u, c.row, far)});
  return c;
}

// The row of the largest element of a column, from row `from` to n, by the whole block.
// held: 33 candidates.
template <class T>
__device__ inline candidate<T> find_pivot(const T *column, int64_t pitch, int from,
                                          int n, candidate<T> *held) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  candidate<T> best = {T(-1), n};
  for (int i = from + int(threadIdx.x); i < n; i += blockDim.x)
    best = better(best, {T(fabs(column[i * pitch])), i});
  best = best_of_warp(best);
  if (warps == 1) return best;
  if (lane == 0) held[warp] = best;
  __syncthreads();
  if (warp == 0) {
    best = best_of_warp(lane < warps ? held[lane] : candidate<T>{T(-1), n});
    if (lane == 0) held[32] = best;
  }
  __syncthreads();
  return held[32];
}

__device__ inline void note_singular(const linear_system &s, int64_t matrix,
                                     int column) {
  if (s.op != MT_OP__determinant && threadIdx.x == 0)
    fault_set(s.fault, s.op, matrix, column + 1, 1, s.count);
}

// From the diagonal of U and the permutation's sign, by the first warp.
template <class T>
__device__ inline void write_determinant(const linear_system &s, const T *a,
                                         int64_t pitch, double sign, int64_t matrix) {
  if (threadIdx.x >= 32) return;
  double value[3] = {1, 1, 0};
  for (int i = threadIdx.x; i < s.n; i += 32) {
    const double d = double(a[i * pitch + i]);
    value[0] *= d;
    value[1] *= d != d || d == 0 ? d : d < 0 ? -1 : 1;
    value[2] += log(fabs(d));
  }
#pragma unroll
  for (int far = 16; far > 0; far /= 2) {
    value[0] *= __shfl_xor_sync(~0u, value[0], far);
    value[1] *= __shfl_xor_sync(~0u, value[1], far);
    value[2] += __shfl_xor_sync(~0u, value[2], far);
  }
  value[0] *= sign, value[1] *= sign;
  for (int o = 0; o < 3 && threadIdx.x == 0; o++)
    if (s.result[o]) static_cast<T *>(s.result[o])[matrix] = T(value[o]);
}

// Element e of the right side of all matrices.
template <class T> __device__ inline T right_side(const linear_system &s, int64_t e) {
  if (s.b) return static_cast<const T *>(s.b)[e];
  return T(e / s.m % s.n == e % s.m ? 1 : 0);
}

// ---- a block each -----------------------------------------------------------------------

struct block_shape {
  int pitch; // of a row of a; odd, so that a column is spread over the banks
  int chunk; // columns of the right side that are there at a time
  int width; // threads that share a row
  int threads;
  size_t bytes; // of shared memory
};

// In shared memory: a, then rows of the right side, then where each row came from.
template <class T> __global__ void lu_block_kernel(linear_system s, block_shape h) {
  extern __shared__ __align__(16) char memory[];
  __shared__ candidate<T> held[33];
  const int n = s.n, column = threadIdx.x % h.width, row = threadIdx.x / h.width,
            rows = blockDim.x / h.width;
  T *a = reinterpret_cast<T *>(memory), *x = a + n * h.pitch;
  int *origin = reinterpret_cast<int *>(x + n * h.chunk);
  for (int64_t matrix = blockIdx.x; matrix < s.count; matrix += gridDim.x) {
    const T *from = static_cast<const T *>(s.a) + matrix * n * n;
    for (int e = threadIdx.x; e < n * n; e += blockDim.x)
      a[e / n * h.pitch + e % n] = from[e];
    for (int i = threadIdx.x; i < n; i += blockDim.x) origin[i] = i;
    __syncthreads();
    int sign = 1;
    for (int k = 0; k < n; k++) {
      const candidate<T> best = find_pivot(a + k, h.pitch, k, n, held);
      if (best.size == T(0)) { // so are all below it
        note_singular(s, matrix, k);
        continue;
      }
      if (best.row != k) {
        sign = -sign;
        for (int j = threadIdx.x; j <= n; j += blockDim.x) {
          if (j == n) {
            const int t = origin[k];
            origin[k] = origin[best.row], origin[best.row] = t;
          } else {
            const T t = a[k * h.pitch + j];
            a[k * h.pitch + j] = a[best.row * h.pitch + j];
            a[best.row * h.pitch + j] = t;
          }
        }
        __syncthreads();
      }
      const T pivot = a[k * h.pitch + k];
      for (int i = k + 1 + int(threadIdx.x); i < n; i += blockDim.x)
        a[i * h.pitch + k] /= pivot;
      __syncthreads();
      for (int i = k + 1 + row; i < n; i += rows)
        for (int j = k + 1 + column; j < n; j += h.width)
          a[i * h.pitch + j] -= a[i * h.pitch + k] * a[k * h.pitch + j];
      __syncthreads();
    }
    if (s.m == 0) write_determinant(s, a, h.pitch, sign, matrix);
    for (int first = 0; first < s.m; first += h.chunk) {
      const int w = min(h.chunk, s.m - first);
      for (int i = row; i < n; i += rows)
        for (int j = column; j < w; j += h.width)
          x[i * h.chunk + j] =
              right_side<T>(s, (matrix * n + origin[i]) * s.m + first + j);
      __syncthreads();
      for (int k = 0; k < n; k++) {
        for (int i = k + 1 + row; i < n; i += rows)
          for (int j = column; j < w; j += h.width)
            x[i * h.chunk + j] -= a[i * h.pitch + k] * x[k * h.chunk + j];
        __syncthreads();
      }
      for (int k = n - 1; k >= 0; k--) {
        for (int j = threadIdx.x; j < w; j += blockDim.x)
          x[k * h.chunk + j] /= a[k * h.pitch + k];
        __syncthreads();
        for (int i = row; i < k; i += rows)
          for (int j = column; j < w; j += h.width)
            x[i * h.chunk + j] -= a[i * h.pitch + k] * x[k * h.chunk + j];
        __syncthreads();
      }
      T *to = static_cast<T *>(s.x) + matrix * n * s.m + first;
      for (int i = row; i < n; i += rows)
        for (int j = column; j < w; j += h.width)
          to[int64_t(i) * s.m + j] = x[i * h.chunk + j];
      __syncthreads();
    }
    __syncthreads();
  }
}

// ---- panels -----------------------------------------------------------------------------

constexpr int panel = 32; // columns, one for each lane

template <class T> __global__ void start_kernel(linear_system s, T *work) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x, size = s.count * s.n * s.n;
  const int64_t first = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t e = first; e < size; e += step) work[e] = static_cast<const T *>(s.a)[e];
  for (int64_t e = first; e < s.count * s.n * s.m; e += step)
    static_cast<T *>(s.x)[e] = right_side<T>(s, e);
}

// Columns k .. k + w - 1 eliminated among themselves; a block a matrix, a warp a row.
template <class T>
__global__ void __launch_bounds__(1024)
    panel_kernel(linear_system s, T *work, int *pivots, int64_t base, int k, int w) {
  __shared__ candidate<T> held[33];
  const int64_t matrix = base + blockIdx.x, n = s.n;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  T *a = work + matrix * n * n + k;
  for (int j = 0; j < w; j++) {
    const int top = k + j;
    const candidate<T> best = find_pivot(a + j, n, top, int(n), held);
    if (threadIdx.x == 0) pivots[matrix * n + top] = best.row;
    if (best.size == T(0)) { // so are all below it
      note_singular(s, matrix, top);
      continue;
    }
    if (best.row != top && int(threadIdx.x) < w) {
      const T t = a[top * n + threadIdx.x];
      a[top * n + threadIdx.x] = a[best.row * n + threadIdx.x];
      a[best.row * n + threadIdx.x] = t;
    }
    __syncthreads();
    const T pivot = a[top * n + j], above = lane < w ? a[top * n + lane] : T(0);
#pragma unroll 4
    for (int i = top + 1 + warp; i < n; i += warps) {
      const T v = lane < w ? a[i * n + lane] : T(0);
      const T factor = __shfl_sync(~0u, v, j) / pivot;
      if (lane >= j && lane < w)
        a[i * n + lane] = lane == j ? factor : v - factor * above;
    }
    __syncthreads();
  }
}

// The w rows from k on of other columns, a thread a column: first exchanged as the pivots
// say, then multiplied by the inverse of the panel's L; or (Upper) by that of its U alone.
template <class T, bool Upper>
__global__ void __launch_bounds__(128)
    panel_rows_kernel(const T *work, const int *pivots, int64_t base, int n, int k,
                      int w, T *rows, int64_t pitch, int64_t matrix_size, int columns) {
  __shared__ T held[panel][panel + 1];
  const int64_t matrix = base + blockIdx.y;
  const T *a = work + matrix * n * n;
  for (int e = threadIdx.x; e < panel * panel; e += blockDim.x) {
    const int i = e / panel, j = e % panel;
    const bool inside = i < w && j < w && (Upper ? j >= i : j < i);
    held[i][j] = inside ? a[int64_t(k + i) * n + k + j] : T(i == j ? 1 : 0);
  }
  __syncthreads();
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  T *to = rows + matrix * matrix_size + column, v[panel];
  for (int i = 0; i < w && !Upper; i++) {
    const int64_t other = pivots[matrix * n + k + i];
    if (other == k + i) continue;
    const T t = to[(k + i) * pitch];
    to[(k + i) * pitch] = to[other * pitch], to[other * pitch] = t;
  }
#pragma unroll
  for (int i = 0; i < panel; i++) v[i] = i < w ? to[(k + i) * pitch] : T(0);
#pragma unroll
  for (int step = 0; step < panel; step++) {
    const int i = Upper ? panel - 1 - step : step;
#pragma unroll
    for (int before = 0; before < step; before++) {
      const int j = Upper ? panel - 1 - before : before;
      v[i] -= held[i][j] * v[j];
    }
    if (Upper) v[i] /= held[i][i];
  }
#pragma unroll
  for (int i = 0; i < panel; i++)
    if (i < w) to[(k + i) * pitch] = v[i];
}

// c (rows x columns) -= a (rows x w) b (w x columns) for each matrix. A block has a tile of
// 64 x 64, a thread 4 x 4 of it.
template <class T> struct update {
  const T *a, *b;
  T *c;
  int64_t next_a, next_c, pitch_a, pitch; // of matrices; of a, of b and c
  int rows, columns, w;
};

template <class T>
__global__ void __launch_bounds__(256) panel_update_kernel(update<T> u, int64_t base) {
  constexpr int tile = 64;
  __shared__ T a[panel][tile + 1], b[panel][tile];
  const int64_t matrix = base + blockIdx.z;
  const int i0 = blockIdx.y * tile, j0 = blockIdx.x * tile;
  const T *from_a = u.a + matrix * u.next_a, *from_b = u.b + matrix * u.next_c;
  for (int e = threadIdx.x; e < panel * tile; e += blockDim.x) {
    const int i = e / panel, t = e % panel, j = e % tile, r = e / tile;
    a[t][i] = i0 + i < u.rows && t < u.w ? from_a[(i0 + i) * u.pitch_a + t] : T(0);
    b[r][j] = j0 + j < u.columns && r < u.w ? from_b[r * u.pitch + j0 + j] : T(0);
  }
  __syncthreads();
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  T sum[4][4] = {};
#pragma unroll 8
  for (int t = 0; t < panel; t++)
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) sum[i][j] += a[t][y + 16 * i] * b[t][x + 16 * j];
  T *c = u.c + matrix * u.next_c;
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int r = i0 + y + 16 * i, q = j0 + x + 16 * j;
      if (r < u.rows && q < u.columns) c[r * u.pitch + q] -= sum[i][j];
    }
}

template <class T>
__global__ void determinant_kernel(linear_system s, const T *work, const int *pivots,
                                   int64_t base) {
  const int64_t matrix = base + blockIdx.x, n = s.n;
  int exchanges = 0;
  for (int i = threadIdx.x; i < n; i += 32) exchanges += pivots[matrix * n + i] != i;
#pragma unroll
  for (int far = 16; far > 0; far /= 2)
    exchanges += __shfl_xor_sync(~0u, exchanges, far);
  write_determinant(s, work + matrix * n * n, n, exchanges % 2 ? -1 : 1, matrix);
}

// ---- launches ---------------------------------------------------------------------------

linear_system system_of(const mt_call *call) {
  const mt_view *a = call->in[0];
  linear_system s{};
  s.n = int(a->shape[a->ndim - 1]);
  s.op = call->op, s.fault = call->fault, s.a = a->data, s.count = 1;
  for (int d = 0; d < a->ndim - 2; d++) s.count *= a->shape[d];
  if (call->op == MT_OP__determinant) {
    for (int o = 0; o < 3; o++)
      s.result[o] = call->out[o] ? call->out[o]->data : nullptr;
    return s;
  }
  s.b = call->nin > 1 ? call->in[1]->data : nullptr;
  s.x = call->out[0]->data;
  s.m = int(call->out[0]->shape[a->ndim - 1]);
  if (s.n == 0 || s.m == 0) s.count = 0;
  return s;
}

// threads = 0: a matrix, and some columns beside it, do not fit.
mt_status shape_of(const mt_call *call, const linear_system &s, block_shape *h) {
  const int64_t size = dtype_size(call->in[0]->dtype), reserved = 1024;
  int most = 0;
  *h = {};
  CUDA_TRY(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                  call->device));
  if (s.n > 1024) return MT_OK;
  h->pitch = s.n | 1;
  const int64_t left = most - reserved - int64_t(s.n) * (h->pitch * size + 4);
  const int64_t fit = left / (std::max(s.n, 1) * size), wanted = std::min(s.m, 64);
  if (left < 0 || fit < std::min<int64_t>(wanted, 8)) return MT_OK;
  h->chunk = int(std::min(fit, wanted));
  h->bytes = size_t(s.n) * ((h->pitch + h->chunk) * size + 4);
  h->threads = s.n <= 8 ? 32 : s.n <= 16 ? 64 : s.n <= 32 ? 128 : s.n <= 96 ? 256 : 512;
  h->width = s.n <= 4 ? 4 : s.n <= 8 ? 8 : s.n <= 16 ? 16 : 32;
  return MT_OK;
}

template <class T>
mt_status run_blocks(const mt_call *call, const linear_system &s,
                     const block_shape &h) {
  if (h.bytes > 48 * 1024)
    CUDA_TRY(cudaFuncSetAttribute(
        lu_block_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(h.bytes)));
  const unsigned grid = unsigned(std::min<int64_t>(s.count, INT32_MAX));
  lu_block_kernel<T><<<grid, h.threads, h.bytes, stream_of(call)>>>(s, h);
  return launched();
}

template <class T>
mt_status run_rows(const mt_call *call, const linear_system &s, const T *work,
                   const int *pivots, int64_t base, unsigned count, int k, int w,
                   bool upper, T *rows, int64_t pitch, int columns) {
  if (columns == 0) return MT_OK;
  const dim3 grid((columns + 127) / 128, count);
  const auto kernel = upper ? panel_rows_kernel<T, true> : panel_rows_kernel<T, false>;
  kernel<<<grid, 128, 0, stream_of(call)>>>(work, pivots, base, s.n, k, w, rows, pitch,
                                            s.n * pitch, columns);
  return launched();
}

template <class T>
mt_status run_update(const mt_call *call, const update<T> &u, int64_t base,
                     unsigned count) {
  if (u.rows == 0 || u.columns == 0) return MT_OK;
  const dim3 grid((u.columns + 63) / 64, (u.rows + 63) / 64, count);
  panel_update_kernel<<<grid, 256, 0, stream_of(call)>>>(u, base);
  return launched();
}

#define TRY(status_of)                                       \
  do {                                                       \
    if (const mt_status status = (status_of)) return status; \
  } while (0)

// Matrices base .. base + count - 1.
template <class T>
mt_status run_panels(const mt_call *call, const linear_system &s, T *work, int *pivots,
                     int64_t base, unsigned count) {
  const int n = s.n, m = s.m;
  const int64_t size = int64_t(n) * n, pitch = n;
  T *x = static_cast<T *>(s.x);
  for (int k = 0; k < n; k += panel) {
    const int w = std::min(panel, n - k), end = k + w, right = n - end;
    T *top = work + k * pitch, *below = work + end * pitch;
    panel_kernel<T><<<count, 1024, 0, stream_of(call)>>>(s, work, pivots, base, k, w);
    TRY(launched());
    TRY(run_rows(call, s, work, pivots, base, count, k, w, false, work + end, pitch,
                 right));
    TRY(run_rows(call, s, work, pivots, base, count, k, w, false, x, m, m));
    TRY(run_update(call,
                   update<T>{below + k, top + end, below + end, size, size, pitch,
                             pitch, right, right, w},
                   base, count));
    TRY(run_update(call,
                   update<T>{below + k, x + int64_t(k) * m, x + int64_t(end) * m, size,
                             int64_t(n) * m, pitch, m, right, m, w},
                   base, count));
  }
  if (m == 0) {
    determinant_kernel<T><<<count, 32, 0, stream_of(call)>>>(s, work, pivots, base);
    return launched();
  }
  for (int k = (n - 1) / panel * panel; k >= 0; k -= panel) {
    const int w = std::min(panel, n - k);
    TRY(run_rows(call, s, work, pivots, base, count, k, w, true, x, m, m));
    TRY(run_update(call,
                   update<T>{work + k, x + int64_t(k) * m, x, size, int64_t(n) * m,
                             pitch, m, k, m, w},
                   base, count));
  }
  return MT_OK;
}

size_t lu_scratch(const mt_call *call) {
  const linear_system s = system_of(call);
  block_shape h;
  if (s.count == 0 || shape_of(call, s, &h) != MT_OK || h.threads > 0) return 0;
  return size_t(s.count) * s.n * (s.n * dtype_size(call->in[0]->dtype) + sizeof(int));
}

template <class T> mt_status run_lu(const mt_call *call, const linear_system &s) {
  block_shape h;
  TRY(shape_of(call, s, &h));
  if (h.threads > 0) return run_blocks<T>(call, s, h);
  T *work = static_cast<T *>(call->scratch);
  int *pivots = reinterpret_cast<int *>(work + s.count * s.n * s.n);
  start_kernel<T>
      <<<unsigned(std::min<int64_t>(s.count * s.n, 65536)), 256, 0, stream_of(call)>>>(
          s, work);
  TRY(launched());
  constexpr int64_t most = 65535; // of a grid's second and third size
  for (int64_t base = 0; base < s.count; base += most)
    TRY(run_panels(call, s, work, pivots, base,
                   unsigned(std::min(most, s.count - base))));
  return MT_OK;
}

mt_status run(const mt_call *call) {
  for (int i = 0; i < call->nin; i++)
    if (call->in[i]->shape[call->in[i]->ndim - 1] > INT32_MAX)
      return cuda_fail_text(MT_EUNSUPPORTED, "more than 2^31 - 1 columns");
  const linear_system s = system_of(call);
  if (s.count == 0) return MT_OK;
  return call->in[0]->dtype == MT_F64 ? run_lu<double>(call, s)
                                      : run_lu<float>(call, s);
}

} // namespace

CUDA_ENTRY(inverse) = {run, lu_scratch, MT_FLOAT32_64, 3};
CUDA_ENTRY(_solve) = {run, lu_scratch, MT_FLOAT32_64, 3};
CUDA_ENTRY(_determinant) = {run, lu_scratch, MT_FLOAT32_64, 3};
