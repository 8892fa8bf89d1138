// kernels/cuda/blas.cu -- cuBLASLt: found at run time; plans cached by what they depend on,
// the fastest of the heuristic's candidates found by timing them once.
#include <cublasLt.h>
#include <dlfcn.h>
#include <algorithm>
#include <mutex>
#include <string>
#include <unordered_map>
#include "kernels/cuda/blas.cuh"
#include "kernels/cuda/library.cuh"
#include "kernels/cuda/race.cuh"

const mt_entry *cuda_elementwise(mt_op op);

namespace {

// ---- the library ------------------------------------------------------------------------
#define BLAS_FUNCTIONS(X)                 \
  X(cublasLtCreate)                       \
  X(cublasLtMatmul)                       \
  X(cublasLtMatmulDescCreate)             \
  X(cublasLtMatmulDescDestroy)            \
  X(cublasLtMatmulDescSetAttribute)       \
  X(cublasLtMatrixLayoutCreate)           \
  X(cublasLtMatrixLayoutDestroy)          \
  X(cublasLtMatrixLayoutSetAttribute)     \
  X(cublasLtMatmulPreferenceCreate)       \
  X(cublasLtMatmulPreferenceDestroy)      \
  X(cublasLtMatmulPreferenceSetAttribute) \
  X(cublasLtMatmulAlgoGetHeuristic)

struct {
#define DECLARE(name) decltype(&::name) name;
  BLAS_FUNCTIONS(DECLARE)
#undef DECLARE
} lt;

std::string library_error;

bool load_library() {
  static const bool loaded = [] {
    void *library = open_library("libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR),
                                 &library_error);
    if (!library) return false;
#define LOAD(name)                                                      \
  lt.name = reinterpret_cast<decltype(lt.name)>(dlsym(library, #name)); \
  if (!lt.name) {                                                       \
    library_error = "cuBLASLt has no " #name;                           \
    return false;                                                       \
  }
    BLAS_FUNCTIONS(LOAD)
#undef LOAD
    return true;
  }();
  return loaded;
}

mt_status blas_fail(cublasStatus_t status, const char *what) {
  return cuda_fail_text(status == CUBLAS_STATUS_ALLOC_FAILED ? MT_EMEMORY
                                                             : MT_EUNSUPPORTED,
                        "cuBLASLt: %s: status %d", what, int(status));
}
#define BLAS_TRY(call)                             \
  do {                                             \
    const cublasStatus_t blas_try_status = (call); \
    if (blas_try_status != CUBLAS_STATUS_SUCCESS)  \
      return blas_fail(blas_try_status, #call);    \
  } while (0)

// ---- plans ------------------------------------------------------------------------------
// Everything that a plan depends on; compared as bytes.
struct key {
  int64_t m, n, k, count, lda, ldb, ldc, next_a, next_b, next_c;
  int32_t dtype, compute, epilogue, transposed_a, transposed_b, align_a, align_b,
      align_c, deterministic, device;
  bool operator==(const key &o) const { return !memcmp(this, &o, sizeof o); }
};
struct key_hash {
  size_t operator()(const key &k) const { // FNV-1a over 8-byte words
    uint64_t w[sizeof k / 8];
    memcpy(w, &k, sizeof k);
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < sizeof k / 8; i++) h = (h ^ w[i]) * UINT64_C(1099511628211);
    return size_t(h ^ h >> 29);
  }
};

enum { WITH_BIAS = 1, WITH_RELU = 2 }; // bits of key.epilogue

constexpr int max_candidates = 16;

struct plan {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algo;
  size_t workspace = 0; // bytes
  bool relu = false;    // the product's epilogue does it
};

// Plans stay where they are: neither removed nor changed, but for the bias' address, which
// is set and used under the lock.
struct {
  std::mutex lock;
  cublasLtHandle_t handle;
  std::unordered_map<key, plan, key_hash> plans;
} device_state[16];

// What this thread looked up last: a call asks for its scratch, then runs.
thread_local struct {
  key q;
  const plan *p;
} recent;

struct types {
  cudaDataType_t data, scale;
  cublasComputeType_t compute;
};

types types_of(mt_dtype d, int precision) {
  switch (d) {
  case MT_F64: return {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F};
  case MT_F16: return {CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F};
  case MT_BF16: return {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F};
  default:
    return {CUDA_R_32F, CUDA_R_32F,
            precision == 0   ? CUBLAS_COMPUTE_32F
            : precision == 1 ? CUBLAS_COMPUTE_32F_FAST_TF32
                             : CUBLAS_COMPUTE_32F_FAST_16BF};
  }
}

mt_status make_layout(cublasLtMatrixLayout_t *layout, cudaDataType_t type, int64_t rows,
                      int64_t columns, int64_t ld, int64_t count, int64_t next) {
  BLAS_TRY(lt.cublasLtMatrixLayoutCreate(layout, type, uint64_t(rows),
                                         uint64_t(columns), ld));
  if (count == 1) return MT_OK;
  const int32_t batch = int32_t(count);
  BLAS_TRY(lt.cublasLtMatrixLayoutSetAttribute(
      *layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch));
  BLAS_TRY(lt.cublasLtMatrixLayoutSetAttribute(
      *layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &next, sizeof next));
  return MT_OK;
}

mt_status set_epilogue(const key &q, plan *p) {
  const cublasLtEpilogue_t after = p->relu ? CUBLASLT_EPILOGUE_RELU_BIAS
                                   : q.epilogue & WITH_BIAS ? CUBLASLT_EPILOGUE_BIAS
                                                            : CUBLASLT_EPILOGUE_DEFAULT;
  BLAS_TRY(lt.cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                             &after, sizeof after));
  return MT_OK;
}

mt_status set_bias(const plan &p, const void *bias) {
  if (bias)
    BLAS_TRY(lt.cublasLtMatmulDescSetAttribute(
        p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
  return MT_OK;
}

// cuBLAS thinks in columns: our row-major c is its c^T = b^T a^T.
mt_status make_descriptors(const key &q, plan *p, types t) {
  const cublasOperation_t first = q.transposed_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t second = q.transposed_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  BLAS_TRY(lt.cublasLtMatmulDescCreate(&p->desc, t.compute, t.scale));
  BLAS_TRY(lt.cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA,
                                             &first, sizeof first));
  BLAS_TRY(lt.cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSB,
                                             &second, sizeof second));
  if (const mt_status status = set_epilogue(q, p)) return status;
  if (const mt_status s =
          make_layout(&p->b, t.data, q.transposed_b ? q.k : q.n,
                      q.transposed_b ? q.n : q.k, q.ldb, q.count, q.next_b))
    return s;
  if (const mt_status s =
          make_layout(&p->a, t.data, q.transposed_a ? q.m : q.k,
                      q.transposed_a ? q.k : q.m, q.lda, q.count, q.next_a))
    return s;
  return make_layout(&p->c, t.data, q.n, q.m, q.ldc, q.count, q.next_c);
}

mt_status run_plan(cublasLtHandle_t handle, const plan &p,
                   const cublasLtMatmulAlgo_t *algo, const product &q, void *workspace,
                   size_t bytes, cudaStream_t stream) {
  const float alpha = 1, beta = q.accumulate;
  const double alpha64 = 1, beta64 = q.accumulate;
  const bool wide = q.dtype == MT_F64;
  BLAS_TRY(lt.cublasLtMatmul(
      handle, p.desc, wide ? static_cast<const void *>(&alpha64) : &alpha, q.b, p.b,
      q.a, p.a, wide ? static_cast<const void *>(&beta64) : &beta, q.c, p.c, q.c, p.c,
      algo, workspace, bytes, stream));
  return MT_OK;
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
         status != cudaStreamCaptureStatusNone;
}

// ---- which algorithm --------------------------------------------------------------------
// The heuristic's candidates, the likeliest first; how many.
int find_candidates(cublasLtHandle_t handle, const key &q, const plan &p, size_t room,
                    cublasLtMatmulHeuristicResult_t *found) {
  cublasLtMatmulPreference_t wish = nullptr;
  const uint32_t align_a = uint32_t(q.align_a), align_b = uint32_t(q.align_b),
                 align_c = uint32_t(q.align_c);
  int n = 0;
  if (lt.cublasLtMatmulPreferenceCreate(&wish) != CUBLAS_STATUS_SUCCESS) return 0;
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t what, const auto &value) {
    lt.cublasLtMatmulPreferenceSetAttribute(wish, what, &value, sizeof value);
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, room);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, align_b);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, align_a);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, align_c);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, align_c);
  // Parts of a sum are added up in float32 at least, also where the result is shorter.
  const bool half = MT_HALF_MASK >> q.dtype & 1u;
  const uint32_t reduction =
      CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
      (half ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_INPLACE);
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction);
  const cublasStatus_t status = lt.cublasLtMatmulAlgoGetHeuristic(
      handle, p.desc, p.b, p.a, p.c, p.c, wish, max_candidates, found, &n);
  lt.cublasLtMatmulPreferenceDestroy(wish);
  return status == CUBLAS_STATUS_SUCCESS ? n : 0;
}

constexpr size_t nan_room = size_t(1) << 20; // bytes, at the end of the workspace

bool is_nan(const void *x, mt_dtype d) {
  uint32_t bits = 0;
  memcpy(&bits, x, size_t(dtype_size(d)));
  const uint32_t infinity = d == MT_F32 ? 0x7f800000 : d == MT_F16 ? 0x7c00 : 0x7f80;
  return (bits & (d == MT_F32 ? 0x7fffffff : 0x7fff)) > infinity;
}

// Does this candidate's relu leave a NaN as it is? Not all do. It is run with a bias of
// NaNs; c is overwritten.
bool keeps_nan(cublasLtHandle_t handle, const plan &p, const cublasLtMatmulAlgo_t *algo,
               const product &q, void *workspace, cudaStream_t stream) {
  char *const nans = static_cast<char *>(workspace) + blas_workspace - nan_room;
  const size_t size = size_t(dtype_size(q.dtype)), last = size_t(q.m * q.n) - 1;
  char seen[2][8] = {};
  if (cudaMemsetAsync(nans, 0xff, size_t(q.n) * size, stream) != cudaSuccess ||
      set_bias(p, nans) != MT_OK ||
      run_plan(handle, p, algo, q, workspace, blas_workspace - nan_room, stream) !=
          MT_OK)
    return false;
  const char *c = static_cast<const char *>(q.c);
  cudaMemcpyAsync(seen[0], c, size, cudaMemcpyDefault, stream);
  cudaMemcpyAsync(seen[1], c + last * size, size, cudaMemcpyDefault, stream);
  return cudaStreamSynchronize(stream) == cudaSuccess && is_nan(seen[0], q.dtype) &&
         is_nan(seen[1], q.dtype);
}

mt_status choose_algorithm(cublasLtHandle_t handle, const key &q, const product &work,
                           plan *p, void *workspace, cudaStream_t stream) {
  cublasLtMatmulHeuristicResult_t found[max_candidates];
  size_t room = blas_workspace;
  int n = 0;
  if (p->relu) {
    room -= nan_room;
    const int all = find_candidates(handle, q, *p, room, found);
    for (int i = 0; i < all && size_t(work.n) * 8 <= nan_room; i++)
      if (keeps_nan(handle, *p, &found[i].algo, work, workspace, stream))
        found[n++] = found[i];
    p->relu = n > 0;
    if (const mt_status status = set_bias(*p, work.bias)) return status;
    if (!p->relu)
      if (const mt_status status = set_epilogue(q, p)) return status;
  }
  if (n == 0) n = find_candidates(handle, q, *p, room, found);
  if (n == 0)
    return cuda_fail_text(MT_EUNSUPPORTED,
                          "cuBLASLt has no algorithm for this product");
  int best = 0;
  if (n > 1 && !q.deterministic && !work.accumulate && !is_capturing(stream))
    best = std::max(0, fastest(stream, n, [&](int i) {
                      return run_plan(handle, *p, &found[i].algo, work, workspace, room,
                                      stream) == MT_OK;
                    }));
  p->algo = found[best].algo;
  p->workspace = found[best].workspaceSize;
  return MT_OK;
}

// Bytes: what a whole block has, or at most 16, beyond which no kernel asks. Few values, so
// that views don't multiply the plans.
int32_t alignment(const void *p) {
  const uintptr_t u = reinterpret_cast<uintptr_t>(p);
  return u % 256 == 0 ? 256 : int32_t((u | 16) & (~(u | 16) + 1));
}

void destroy(plan *p) {
  if (p->desc) lt.cublasLtMatmulDescDestroy(p->desc);
  for (cublasLtMatrixLayout_t layout : {p->a, p->b, p->c})
    if (layout) lt.cublasLtMatrixLayoutDestroy(layout);
}

key key_of(const mt_call *call, const product &w) {
  key q;
  memset(&q, 0, sizeof q);
  q.m = w.m, q.n = w.n, q.k = w.k, q.count = w.count;
  q.transposed_a = w.acs != 1, q.transposed_b = w.bcs != 1;
  q.lda = q.transposed_a ? w.acs : w.ars, q.ldb = q.transposed_b ? w.bcs : w.brs;
  q.ldc = w.crs;
  // what a size of 1 leaves open
  q.lda = std::max(q.lda, q.transposed_a ? w.m : w.k);
  q.ldb = std::max(q.ldb, q.transposed_b ? w.k : w.n);
  q.ldc = std::max(q.ldc, w.n);
  if (w.count > 1) q.next_a = w.next_a, q.next_b = w.next_b, q.next_c = w.next_c;
  q.dtype = w.dtype, q.compute = types_of(w.dtype, call->precision).compute;
  q.epilogue = (w.bias ? WITH_BIAS : 0) | (w.after == activation::relu ? WITH_RELU : 0);
  q.device = call->device;
  q.align_a = alignment(w.a), q.align_b = alignment(w.b), q.align_c = alignment(w.c);
  q.deterministic = call->deterministic;
  return q;
}

// The lock is held. NULL: there is none yet.
const plan *find_plan(const key &q) {
  if (recent.p && recent.q == q) return recent.p;
  auto &plans = device_state[q.device].plans;
  const auto at = plans.find(q);
  if (at == plans.end()) return nullptr;
  recent.q = q, recent.p = &at->second;
  return recent.p;
}

// The lock is held.
mt_status make_plan(const mt_call *call, const key &q, const product &w,
                    void *workspace) {
  auto &state = device_state[q.device];
  plan p;
  p.relu = q.epilogue & WITH_RELU && !is_capturing(stream_of(call));
  mt_status status = make_descriptors(q, &p, types_of(w.dtype, call->precision));
  if (status == MT_OK) status = set_bias(p, w.bias);
  if (status == MT_OK)
    status = choose_algorithm(state.handle, q, w, &p, workspace, stream_of(call));
  if (status != MT_OK) return destroy(&p), status;
  state.plans.emplace(q, p);
  return MT_OK;
}

// c = relu(c), where no epilogue did it.
mt_status relu_after(const mt_call *call, const product &w) {
  mt_view c{};
  c.data = static_cast<char *>(w.c), c.dtype = w.dtype, c.ndim = 1;
  c.shape[0] = w.m * w.n, c.stride[0] = 1;
  const mt_view *const in[1] = {&c};
  mt_view *const out[1] = {&c};
  mt_call next = *call;
  next.op = MT_OP_relu, next.nin = next.nout = 1, next.in = in, next.out = out;
  return cuda_elementwise(MT_OP_relu)->run(&next);
}

} // namespace

size_t product_workspace(const mt_call *call, const product &w) {
  if (is_small_product(w)) return 0;
  const key q = key_of(call, w);
  std::lock_guard<std::mutex> hold(device_state[q.device].lock);
  const plan *p = find_plan(q);
  return p ? p->workspace : blas_workspace;
}

mt_status run_product(const mt_call *call, const product &w, void *workspace) {
  if (is_small_product(w)) return run_small_product(call, w);
  if (!load_library())
    return cuda_fail_text(MT_EUNSUPPORTED, "%s", library_error.c_str());
  const key q = key_of(call, w);
  auto &state = device_state[q.device];
  std::unique_lock<std::mutex> hold(state.lock);
  const plan *p = find_plan(q);
  if (!p) {
    if (!state.handle) BLAS_TRY(lt.cublasLtCreate(&state.handle));
    if (const mt_status status = make_plan(call, q, w, workspace)) return status;
    p = find_plan(q);
  }
  if (const mt_status status = set_bias(*p, w.bias)) return status;
  if (!w.bias) hold.unlock();
  const mt_status status =
      run_plan(state.handle, *p, &p->algo, w, workspace, p->workspace, stream_of(call));
  const bool left = w.after == activation::relu && !p->relu;
  return status == MT_OK && left ? relu_after(call, w) : status;
}
