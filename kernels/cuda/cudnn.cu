// kernels/cuda/cudnn.cu -- cuDNN: found at run time, used through its graph interface. A
// convolution is a graph of one operation, or with its bias and relu of two or three; the
// heuristic names engines for it.
#include <dlfcn.h>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include "kernels/cuda/cudnn.cuh"
#include "kernels/cuda/library.cuh"

#if defined(__has_include)
#if __has_include(<cudnn_graph.h>)
#include <cudnn_graph.h>
#define HAVE_CUDNN_HEADER 1
#endif
#endif

namespace {

// ---- the interface ----------------------------------------------------------------------
// cuDNN's header may be missing where this is compiled, and its numbers never change.
#define CUDNN_NUMBERS(X)                                          \
  X(BACKEND_POINTWISE_DESCRIPTOR, 0)                              \
  X(BACKEND_CONVOLUTION_DESCRIPTOR, 1)                            \
  X(BACKEND_ENGINE_DESCRIPTOR, 2)                                 \
  X(BACKEND_ENGINECFG_DESCRIPTOR, 3)                              \
  X(BACKEND_ENGINEHEUR_DESCRIPTOR, 4)                             \
  X(BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)                         \
  X(BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 10)         \
  X(BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, 11) \
  X(BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, 12)   \
  X(BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)                   \
  X(BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)                        \
  X(BACKEND_VARIANT_PACK_DESCRIPTOR, 16)                          \
  X(BACKEND_TENSOR_DESCRIPTOR, 17)                                \
  X(TYPE_HANDLE, 0)                                               \
  X(TYPE_DATA_TYPE, 1)                                            \
  X(TYPE_BOOLEAN, 2)                                              \
  X(TYPE_INT64, 3)                                                \
  X(TYPE_FLOAT, 4)                                                \
  X(TYPE_VOID_PTR, 6)                                             \
  X(TYPE_CONVOLUTION_MODE, 7)                                     \
  X(TYPE_HEUR_MODE, 8)                                            \
  X(TYPE_NUMERICAL_NOTE, 11)                                      \
  X(TYPE_POINTWISE_MODE, 14)                                      \
  X(TYPE_BACKEND_DESCRIPTOR, 15)                                  \
  X(DATA_FLOAT, 0)                                                \
  X(DATA_HALF, 2)                                                 \
  X(DATA_BFLOAT16, 9)                                             \
  X(CROSS_CORRELATION, 1)                                         \
  X(POINTWISE_ADD, 0)                                             \
  X(POINTWISE_RELU_FWD, 100)                                      \
  X(HEUR_MODE_B, 1)                                               \
  X(HEUR_MODE_FALLBACK, 2)                                        \
  X(HEUR_MODE_A, 3)                                               \
  X(NUMERICAL_NOTE_TENSOR_CORE, 0)                                \
  X(NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, 1)                        \
  X(NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, 2)                \
  X(NUMERICAL_NOTE_NONDETERMINISTIC, 4)                           \
  X(NUMERICAL_NOTE_WINOGRAD_TILE_13x13, 8)                        \
  X(ATTR_POINTWISE_MODE, 0)                                       \
  X(ATTR_POINTWISE_MATH_PREC, 1)                                  \
  X(ATTR_CONVOLUTION_COMP_TYPE, 100)                              \
  X(ATTR_CONVOLUTION_CONV_MODE, 101)                              \
  X(ATTR_CONVOLUTION_DILATIONS, 102)                              \
  X(ATTR_CONVOLUTION_FILTER_STRIDES, 103)                         \
  X(ATTR_CONVOLUTION_POST_PADDINGS, 104)                          \
  X(ATTR_CONVOLUTION_PRE_PADDINGS, 105)                           \
  X(ATTR_CONVOLUTION_SPATIAL_DIMS, 106)                           \
  X(ATTR_ENGINEHEUR_MODE, 200)                                    \
  X(ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)                         \
  X(ATTR_ENGINEHEUR_RESULTS, 202)                                 \
  X(ATTR_ENGINECFG_ENGINE, 300)                                   \
  X(ATTR_EXECUTION_PLAN_HANDLE, 400)                              \
  X(ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)                       \
  X(ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)                      \
  X(ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 700)                \
  X(ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 701)                 \
  X(ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, 702)            \
  X(ATTR_OPERATION_CONVOLUTION_FORWARD_W, 703)                    \
  X(ATTR_OPERATION_CONVOLUTION_FORWARD_X, 704)                    \
  X(ATTR_OPERATION_CONVOLUTION_FORWARD_Y, 705)                    \
  X(ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 706)               \
  X(ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 707)                \
  X(ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, 708)           \
  X(ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, 709)                   \
  X(ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, 710)                  \
  X(ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, 711)                  \
  X(ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 712)             \
  X(ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 713)              \
  X(ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, 714)         \
  X(ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, 715)                \
  X(ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, 716)                 \
  X(ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, 717)                \
  X(ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750)                  \
  X(ATTR_OPERATION_POINTWISE_XDESC, 751)                          \
  X(ATTR_OPERATION_POINTWISE_BDESC, 752)                          \
  X(ATTR_OPERATION_POINTWISE_YDESC, 753)                          \
  X(ATTR_OPERATIONGRAPH_HANDLE, 800)                              \
  X(ATTR_OPERATIONGRAPH_OPS, 801)                                 \
  X(ATTR_TENSOR_BYTE_ALIGNMENT, 900)                              \
  X(ATTR_TENSOR_DATA_TYPE, 901)                                   \
  X(ATTR_TENSOR_DIMENSIONS, 902)                                  \
  X(ATTR_TENSOR_STRIDES, 903)                                     \
  X(ATTR_TENSOR_UNIQUE_ID, 906)                                   \
  X(ATTR_TENSOR_IS_VIRTUAL, 907)                                  \
  X(ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)                           \
  X(ATTR_VARIANT_PACK_DATA_POINTERS, 1001)                        \
  X(ATTR_VARIANT_PACK_WORKSPACE, 1003)                            \
  X(ATTR_ENGINE_NUMERICAL_NOTE, 1303)

#define DECLARE(name, value) constexpr int name = value;
CUDNN_NUMBERS(DECLARE)
#undef DECLARE
#ifdef HAVE_CUDNN_HEADER
#define CHECK(name, value) static_assert(CUDNN_##name == value, "cuDNN's " #name);
CUDNN_NUMBERS(CHECK)
#undef CHECK
#endif

struct {
  size_t (*cudnnGetVersion)();
  int (*cudnnCreate)(void **handle);
  int (*cudnnSetStream)(void *handle, cudaStream_t stream);
  int (*cudnnBackendCreateDescriptor)(int type, void **descriptor);
  int (*cudnnBackendDestroyDescriptor)(void *descriptor);
  int (*cudnnBackendFinalize)(void *descriptor);
  int (*cudnnBackendSetAttribute)(void *descriptor, int name, int type, int64_t count,
                                  const void *values);
  int (*cudnnBackendGetAttribute)(void *descriptor, int name, int type, int64_t room,
                                  int64_t *count, void *values);
  int (*cudnnBackendExecute)(void *handle, void *plan, void *pack);
} dnn;

std::string library_error;

bool load_library() {
  static const bool loaded = [] {
    void *library = open_library("libcudnn.so.9", &library_error);
    if (!library) return false;
#define LOAD(name)                                                        \
  dnn.name = reinterpret_cast<decltype(dnn.name)>(dlsym(library, #name)); \
  if (!dnn.name) {                                                        \
    library_error = "cuDNN has no " #name;                                \
    return false;                                                         \
  }
    LOAD(cudnnGetVersion)
    LOAD(cudnnCreate)
    LOAD(cudnnSetStream)
    LOAD(cudnnBackendCreateDescriptor)
    LOAD(cudnnBackendDestroyDescriptor)
    LOAD(cudnnBackendFinalize)
    LOAD(cudnnBackendSetAttribute)
    LOAD(cudnnBackendGetAttribute)
    LOAD(cudnnBackendExecute)
#undef LOAD
    return true;
  }();
  return loaded;
}

struct {
  std::mutex lock;
  void *handle;
  bool broken; // cudnnCreate failed: not asked again
} device_state[16];

void *handle_of(int device) {
  auto &state = device_state[device];
  std::lock_guard<std::mutex> hold(state.lock);
  if (!state.handle && !state.broken)
    state.broken = dnn.cudnnCreate(&state.handle) != 0;
  return state.broken ? nullptr : state.handle;
}

// ---- descriptors ------------------------------------------------------------------------
// One of cuDNN's descriptors. What fails once stays failed: ok() is asked at the end.
class descriptor {
public:
  explicit descriptor(int type) {
    good = dnn.cudnnBackendCreateDescriptor(type, &p) == 0;
  }
  ~descriptor() {
    if (p) dnn.cudnnBackendDestroyDescriptor(p);
  }
  descriptor(const descriptor &) = delete;
  descriptor &operator=(const descriptor &) = delete;

  void set(int name, int type, int64_t count, const void *values) {
    good = good && dnn.cudnnBackendSetAttribute(p, name, type, count, values) == 0;
  }
  void set(int name, int64_t value) { set(name, TYPE_INT64, 1, &value); }
  void set(int name, const descriptor &d) {
    good = good && d.good;
    set(name, TYPE_BACKEND_DESCRIPTOR, 1, &d.p);
  }
  void finalize() { good = good && dnn.cudnnBackendFinalize(p) == 0; }
  bool ok() const { return good; }
  void *get() const { return p; }
  void *release() {
    void *given = p;
    return p = nullptr, given;
  }

private:
  void *p = nullptr;
  bool good = false;
};

int data_type(int32_t dtype) {
  return dtype == MT_F16 ? DATA_HALF : dtype == MT_BF16 ? DATA_BFLOAT16 : DATA_FLOAT;
}

// inner: it exists only between two operations, in float32.
void describe_tensor(descriptor *t, const conv &v, int64_t id, const int64_t *shape,
                     const int64_t *stride, bool inner = false) {
  const int type = inner ? DATA_FLOAT : data_type(v.dtype);
  if (inner) t->set(ATTR_TENSOR_IS_VIRTUAL, TYPE_BOOLEAN, 1, &inner);
  t->set(ATTR_TENSOR_DATA_TYPE, TYPE_DATA_TYPE, 1, &type);
  t->set(ATTR_TENSOR_DIMENSIONS, TYPE_INT64, 4, shape);
  t->set(ATTR_TENSOR_STRIDES, TYPE_INT64, 4, stride);
  t->set(ATTR_TENSOR_UNIQUE_ID, id);
  t->set(ATTR_TENSOR_BYTE_ALIGNMENT, 16);
  t->finalize();
}

void describe_windows(descriptor *c, const conv &v) {
  const int type = DATA_FLOAT, mode = CROSS_CORRELATION;
  const int64_t stride[2] = {v.sh, v.sw}, padding[2] = {v.ph, v.pw},
                dilation[2] = {v.dh, v.dw};
  c->set(ATTR_CONVOLUTION_COMP_TYPE, TYPE_DATA_TYPE, 1, &type);
  c->set(ATTR_CONVOLUTION_CONV_MODE, TYPE_CONVOLUTION_MODE, 1, &mode);
  c->set(ATTR_CONVOLUTION_SPATIAL_DIMS, 2);
  c->set(ATTR_CONVOLUTION_DILATIONS, TYPE_INT64, 2, dilation);
  c->set(ATTR_CONVOLUTION_FILTER_STRIDES, TYPE_INT64, 2, stride);
  c->set(ATTR_CONVOLUTION_PRE_PADDINGS, TYPE_INT64, 2, padding);
  c->set(ATTR_CONVOLUTION_POST_PADDINGS, TYPE_INT64, 2, padding);
  c->finalize();
}

// y = x + b, or max(x, 0) where b is NULL, element by element
struct pointwise {
  descriptor what{BACKEND_POINTWISE_DESCRIPTOR};
  descriptor op{BACKEND_OPERATION_POINTWISE_DESCRIPTOR};

  void describe(int mode, const descriptor &x, const descriptor *b,
                const descriptor &y) {
    const int type = DATA_FLOAT;
    what.set(ATTR_POINTWISE_MODE, TYPE_POINTWISE_MODE, 1, &mode);
    what.set(ATTR_POINTWISE_MATH_PREC, TYPE_DATA_TYPE, 1, &type);
    what.finalize();
    op.set(ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what);
    op.set(ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b) op.set(ATTR_OPERATION_POINTWISE_BDESC, *b);
    op.set(ATTR_OPERATION_POINTWISE_YDESC, y);
    op.finalize();
  }
};

// The names of one operation's attributes; ids of tensors: 'x', 'w', 'y', 'b'.
struct operation {
  int type, alpha, beta, windows, x, w, y;
};
constexpr operation operations[] = {
    {BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
     ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     ATTR_OPERATION_CONVOLUTION_FORWARD_W, ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    {BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
     ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
    {BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
     ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}};

// ---- engines ----------------------------------------------------------------------------

bool allowed(void *config, const mt_call *call, const conv &v) {
  int note[16];
  int64_t n = 0;
  descriptor engine(BACKEND_ENGINE_DESCRIPTOR);
  void *p = engine.get();
  if (!engine.ok() ||
      dnn.cudnnBackendGetAttribute(config, ATTR_ENGINECFG_ENGINE,
                                   TYPE_BACKEND_DESCRIPTOR, 1, &n, &p) != 0 ||
      dnn.cudnnBackendGetAttribute(p, ATTR_ENGINE_NUMERICAL_NOTE, TYPE_NUMERICAL_NOTE,
                                   16, &n, note) != 0)
    return false;
  for (int64_t i = 0; i < n; i++) {
    if (note[i] == NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) return false;
    if (note[i] == NUMERICAL_NOTE_NONDETERMINISTIC && call->deterministic) return false;
    if (v.dtype != MT_F32) continue;
    if (note[i] == NUMERICAL_NOTE_WINOGRAD_TILE_13x13) return false; // errs by 1e-3
    if (note[i] == NUMERICAL_NOTE_TENSOR_CORE && call->precision == 0) return false;
    if (note[i] == NUMERICAL_NOTE_DOWN_CONVERT_INPUTS && call->precision < 2)
      return false;
  }
  return true;
}

bool make_plan(void *handle, void *config, cudnn_plan *made) {
  descriptor plan(BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  int64_t n = 0, workspace = 0;
  plan.set(ATTR_EXECUTION_PLAN_HANDLE, TYPE_HANDLE, 1, &handle);
  plan.set(ATTR_EXECUTION_PLAN_ENGINE_CONFIG, TYPE_BACKEND_DESCRIPTOR, 1, &config);
  plan.finalize();
  if (!plan.ok() ||
      dnn.cudnnBackendGetAttribute(plan.get(), ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                   TYPE_INT64, 1, &n, &workspace) != 0)
    return false;
  constexpr int64_t most = int64_t(1) << 30; // bytes; what asks for more is no gain
  if (workspace > most) return false;
  *made = {};
  made->plan = plan.release();
  made->workspace = size_t(workspace);
  return true;
}

using clock = std::chrono::steady_clock;

// Adds to the n plans that there are; after `until` one is enough.
int plans_of_mode(const mt_call *call, const conv &v, void *handle,
                  const descriptor &graph, int mode, clock::time_point until,
                  cudnn_plan *made, int n, int most) {
  constexpr int room = 32;
  if (n == most) return n;
  descriptor heuristic(BACKEND_ENGINEHEUR_DESCRIPTOR);
  void *config[room];
  int64_t found = 0;
  int have = 0;
  heuristic.set(ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.set(ATTR_ENGINEHEUR_MODE, TYPE_HEUR_MODE, 1, &mode);
  heuristic.finalize();
  for (; have < room && heuristic.ok(); have++)
    if (dnn.cudnnBackendCreateDescriptor(BACKEND_ENGINECFG_DESCRIPTOR, &config[have]))
      break;
  if (heuristic.ok() &&
      dnn.cudnnBackendGetAttribute(heuristic.get(), ATTR_ENGINEHEUR_RESULTS,
                                   TYPE_BACKEND_DESCRIPTOR, have, &found, config) != 0)
    found = 0;
  for (int64_t i = 0; i < found && n < most; i++) {
    if (n > 0 && clock::now() > until) break;
    if (allowed(config[i], call, v) && make_plan(handle, config[i], &made[n])) n++;
  }
  for (int i = 0; i < have; i++) dnn.cudnnBackendDestroyDescriptor(config[i]);
  return n;
}

} // namespace

int cudnn_version(const char **reason) {
  if (load_library()) return int(dnn.cudnnGetVersion());
  *reason = library_error.c_str();
  return 0;
}

int cudnn_plans(const mt_call *call, const conv &v, bool fused, cudnn_plan *made,
                int most) {
  void *handle = load_library() ? handle_of(call->device) : nullptr;
  if (!handle) return 0;
  descriptor x(BACKEND_TENSOR_DESCRIPTOR), w(BACKEND_TENSOR_DESCRIPTOR),
      y(BACKEND_TENSOR_DESCRIPTOR), windows(BACKEND_CONVOLUTION_DESCRIPTOR),
      graph(BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  descriptor sum(BACKEND_TENSOR_DESCRIPTOR), biased(BACKEND_TENSOR_DESCRIPTOR),
      bias(BACKEND_TENSOR_DESCRIPTOR);
  pointwise add, relu;
  int64_t shape[4];
  v.shape_x(shape), describe_tensor(&x, v, 'x', shape, v.xs);
  v.shape_w(shape), describe_tensor(&w, v, 'w', shape, v.ws);
  v.shape_y(shape), describe_tensor(&y, v, 'y', shape, v.ys);
  if (fused) {
    describe_tensor(&sum, v, 's', shape, v.ys, true);
    if (v.relu()) describe_tensor(&biased, v, 'a', shape, v.ys, true);
  }
  describe_windows(&windows, v);
  const operation &names = operations[int(v.what)];
  const float one = 1, none = 0;
  descriptor op(names.type);
  op.set(names.alpha, TYPE_FLOAT, 1, &one);
  op.set(names.beta, TYPE_FLOAT, 1, &none);
  op.set(names.windows, windows);
  op.set(names.x, x);
  op.set(names.w, w);
  op.set(names.y, fused ? sum : y);
  op.finalize();
  if (fused) {
    const int64_t channels[4] = {1, v.k, 1, 1}, apart[4] = {v.k, 1, v.k, v.k};
    describe_tensor(&bias, v, 'b', channels, apart);
    add.describe(POINTWISE_ADD, sum, &bias, v.relu() ? biased : y);
    if (v.relu()) relu.describe(POINTWISE_RELU_FWD, biased, nullptr, y);
  }
  void *const ops[3] = {op.get(), add.op.get(), relu.op.get()};
  const bool described = op.ok() && (!fused || (add.op.ok() && bias.ok())) &&
                         (!fused || !v.relu() || relu.op.ok());
  if (!described) return 0;
  graph.set(ATTR_OPERATIONGRAPH_HANDLE, TYPE_HANDLE, 1, &handle);
  graph.set(ATTR_OPERATIONGRAPH_OPS, TYPE_BACKEND_DESCRIPTOR,
            !fused     ? 1
            : v.relu() ? 3
                       : 2,
            ops);
  graph.finalize();
  if (!graph.ok()) return 0;
  // some engines are compiled when they are first asked for
  const clock::time_point until = clock::now() + std::chrono::milliseconds(500);
  int n = 0;
  for (int mode : {HEUR_MODE_A, HEUR_MODE_B, HEUR_MODE_FALLBACK})
    n = plans_of_mode(call, v, handle, graph, mode, until, made, n, most);
  for (int i = 0; i < n; i++) made[i].fused = fused;
  return n;
}

mt_status cudnn_run(const mt_call *call, cudnn_plan *plan, const conv_data &d,
                    void *workspace) {
  void *handle = handle_of(call->device);
  const void *const at[5] = {d.x, d.w, d.y, d.bias, workspace};
  if (!plan->pack || memcmp(at, plan->at, sizeof at)) {
    const int64_t id[4] = {'x', 'w', 'y', 'b'}, n = plan->fused ? 4 : 3;
    descriptor pack(BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(ATTR_VARIANT_PACK_UNIQUE_IDS, TYPE_INT64, n, id);
    pack.set(ATTR_VARIANT_PACK_DATA_POINTERS, TYPE_VOID_PTR, n, at);
    pack.set(ATTR_VARIANT_PACK_WORKSPACE, TYPE_VOID_PTR, 1, at + 4);
    pack.finalize();
    if (!pack.ok()) return cuda_fail_text(MT_EUNSUPPORTED, "cuDNN takes no data");
    if (plan->pack) dnn.cudnnBackendDestroyDescriptor(plan->pack);
    plan->pack = pack.release();
    memcpy(plan->at, at, sizeof at);
  }
  int status = dnn.cudnnSetStream(handle, stream_of(call));
  if (status == 0) status = dnn.cudnnBackendExecute(handle, plan->plan, plan->pack);
  if (status == 0) return MT_OK;
  cudaGetLastError();
  return cuda_fail_text(MT_EUNSUPPORTED, "cuDNN failed with status %d", status);
}

void cudnn_free(cudnn_plan *plan) {
  if (plan->plan) dnn.cudnnBackendDestroyDescriptor(plan->plan);
  if (plan->pack) dnn.cudnnBackendDestroyDescriptor(plan->pack);
  plan->plan = plan->pack = nullptr;
}
