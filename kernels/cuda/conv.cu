// kernels/cuda/conv.cu -- conv2d and its backward ops: which way to compute each. Where
// there are several (our implicit GEMM, cuDNN's engines for either layout, cuBLASLt for
// windows of 1 x 1), all run once on the first call's data, and the fastest stays.
#include <list>
#include <mutex>
#include <unordered_map>
#include <vector>
#include "kernels/cuda/blas.cuh"
#include "kernels/cuda/conv_layout.cuh"
#include "kernels/cuda/copy.cuh"
#include "kernels/cuda/cudnn.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/race.cuh"

namespace {

// ---- geometry ---------------------------------------------------------------------------

struct task {
  conv v;
  conv_data data;
};

// attr: stride, padding, dilation, groups.
task make_task(pass what, const mt_view *x, const mt_view *w, const mt_view *y,
               const mt_view *b, const mt_attr *attr) {
  task t;
  memset(&t, 0, sizeof t);
  conv &v = t.v;
  const auto second = [](const mt_attr &a) { return a.n == 1 ? a.i[0] : a.i[1]; };
  v.n = x->shape[0], v.c = x->shape[1], v.h = x->shape[2], v.w = x->shape[3];
  v.k = w->shape[0], v.cg = w->shape[1], v.kh = w->shape[2], v.kw = w->shape[3];
  v.oh = y->shape[2], v.ow = y->shape[3];
  v.sh = attr[0].i[0], v.sw = second(attr[0]);
  v.ph = attr[1].i[0], v.pw = second(attr[1]);
  v.dh = attr[2].i[0], v.dw = second(attr[2]);
  v.groups = attr[3].i[0];
  v.what = what, v.dtype = x->dtype;
  v.aligned = aligned16(x->data) | aligned16(w->data) << 1 | aligned16(y->data) << 2 |
              (b && aligned16(b->data)) << 3;
  v.after = b ? has_bias : 0;
  for (int d = 0; d < 4; d++)
    v.xs[d] = x->stride[d], v.ws[d] = w->stride[d], v.ys[d] = y->stride[d];
  t.data = {x->data, w->data, y->data, b ? b->data : nullptr};
  return t;
}

// ---- ways -------------------------------------------------------------------------------

enum class method { direct, gemm, image, last, product, cudnn };

struct way {
  method how;
  conv v; // as it wants its tensors to lie
  cudnn_plan plan;
  size_t scratch; // bytes of its own
  bool exact;     // float32 as it is, whatever precision was asked for
  bool after;     // bias and relu are left to run_after
  bool copied[3]; // x, w, y: must they be brought into that order?
  size_t total;   // bytes, copies included
};

size_t round256(size_t n) { return (n + 255) / 256 * 256; }

size_t copy_bytes(const conv &v, int which) {
  int64_t shape[4];
  which == 0 ? v.shape_x(shape) : which == 1 ? v.shape_w(shape) : v.shape_y(shape);
  return round256(size_t(shape[0] * shape[1] * shape[2] * shape[3] *
                         dtype_size(mt_dtype(v.dtype))));
}

void complete(way *to, const conv &given) {
  int64_t shape[4];
  given.shape_x(shape);
  to->copied[0] = !same_strides(shape, given.xs, to->v.xs);
  given.shape_w(shape);
  to->copied[1] = !same_strides(shape, given.ws, to->v.ws);
  given.shape_y(shape);
  to->copied[2] = !same_strides(shape, given.ys, to->v.ys);
  to->total = round256(to->scratch);
  for (int i = 0; i < 3; i++) {
    const bool pieces = to->how == method::cudnn || to->how == method::last;
    if (pieces && !(given.aligned >> i & 1)) to->copied[i] = true;
    if (to->copied[i]) to->total += copy_bytes(given, i);
  }
}

// ---- choosing ---------------------------------------------------------------------------

struct key {
  conv v;
  int32_t precision, deterministic, cudnn, device;
  bool operator==(const key &o) const { return !memcmp(this, &o, sizeof o); }
};
struct key_hash {
  size_t operator()(const key &k) const { // FNV-1a over 8-byte words
    uint64_t w[sizeof k / 8];
    static_assert(sizeof k % 8 == 0, "whole words");
    memcpy(w, &k, sizeof k);
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < sizeof k / 8; i++) h = (h ^ w[i]) * UINT64_C(1099511628211);
    return size_t(h ^ h >> 29);
  }
};

struct choice {
  std::list<way> ways; // one, once the fastest is known
  bool settled;
};

std::mutex lock; // of the choices, and of cuDNN's handles
std::unordered_map<key, choice, key_hash> choices;
struct {
  key at;
  choice *found;
} thread_local latest; // an op asks twice: for its scratch, and to run

mt_call in_float32(const mt_call *call) {
  mt_call exact = *call;
  exact.precision = 0;
  return exact;
}

// fused: engines that add the bias and take the relu of it.
void add_cudnn(const mt_call *call, const conv &v, bool channels_last, bool fused,
               int most, choice *c) {
  cudnn_plan plan[8];
  way w{};
  w.how = method::cudnn, w.v = laid_out(v, channels_last), w.after = v.after && !fused;
  const int n = cudnn_plans(call, w.v, fused, plan, call->deterministic ? 1 : most);
  for (int i = 0; i < n; i++) {
    w.plan = plan[i], w.scratch = plan[i].workspace;
    complete(&w, v);
    c->ways.push_back(w);
  }
}

// The ways to compute v; the first one is taken where timing is not allowed.
void find_ways(const mt_call *call, const conv &v, choice *c) {
  // below this many multiplications a launch takes longer than the work
  constexpr double enough = 4e6;
  way own{};
  own.v = v;
  if (is_product(v)) {
    own.how = method::product, own.scratch = blas_workspace;
    own.after = v.after && !adds_bias(v);
    complete(&own, v), c->ways.push_back(own), own.after = false;
  }
  if (call->cudnn && v.dtype != MT_F64 && v.work() >= enough) {
    const bool last = is_channels_last(v), half = v.dtype != MT_F32;
    const bool fused = v.after & has_bias && v.aligned & 8 && !call->deterministic;
    add_cudnn(call, v, last, false, 6, c);
    if (fused) add_cudnn(call, v, last, true, 3, c);
    if (!last) add_cudnn(call, v, true, false, half || call->precision > 0 ? 4 : 2, c);
    if (!last && fused) add_cudnn(call, v, true, true, 2, c);
  }
  if (v.work() >= enough && last_serves(call, v)) {
    own.how = method::last, own.v = last_layout(laid_out(v, true));
    own.scratch = last_scratch(call, own.v);
    complete(&own, v), c->ways.push_back(own);
  }
  if (v.work() >= enough && image_serves(call, v)) {
    own.how = method::image, own.v = v;
    own.scratch = image_scratch(call, v);
    complete(&own, v), c->ways.push_back(own);
  }
  own.how = gemm_serves(call, v) ? method::gemm : method::direct, own.v = v;
  own.scratch = own.how == method::gemm ? gemm_scratch(call, v) : 0;
  complete(&own, v), c->ways.push_back(own);
  if (own.how == method::gemm && v.dtype == MT_F32 && call->precision > 0) {
    const mt_call exact = in_float32(call);
    own.exact = true, own.scratch = gemm_scratch(&exact, v);
    complete(&own, v), c->ways.push_back(own);
  }
}

choice *choice_for(const mt_call *call, const conv &v) { // lock held
  key k;
  memset(&k, 0, sizeof k);
  k.v = v, k.precision = call->precision, k.deterministic = call->deterministic;
  k.cudnn = call->cudnn, k.device = call->device;
  if (latest.found && latest.at == k) return latest.found;
  choice &c = choices[k];
  if (c.ways.empty()) {
    find_ways(call, v, &c);
    c.settled = c.ways.size() == 1;
  }
  latest.at = k, latest.found = &c;
  return &c;
}

mt_status copy_order(const mt_call *call, const conv &v, int which, const void *from,
                     const int64_t *from_stride, void *to, const int64_t *to_stride) {
  mt_view src{}, dst{};
  src.dtype = dst.dtype = mt_dtype(v.dtype), src.ndim = dst.ndim = 4;
  which == 0   ? v.shape_x(src.shape)
  : which == 1 ? v.shape_w(src.shape)
               : v.shape_y(src.shape);
  for (int d = 0; d < 4; d++) {
    dst.shape[d] = src.shape[d];
    src.stride[d] = from_stride[d], dst.stride[d] = to_stride[d];
  }
  src.data = static_cast<char *>(const_cast<void *>(from));
  dst.data = static_cast<char *>(to);
  return copy_view(call, &src, &dst);
}

mt_status run_way(const mt_call *call, const task &t, way &w) {
  char *scratch = static_cast<char *>(call->scratch);
  char *room = scratch + round256(w.scratch);
  conv_data d = t.data;
  const void **const part[3] = {&d.x, &d.w, &d.y};
  const int64_t *const given[3] = {t.v.xs, t.v.ws, t.v.ys};
  const int64_t *const wanted[3] = {w.v.xs, w.v.ws, w.v.ys};
  const int result = t.v.what == pass::forward ? 2 : t.v.what == pass::input ? 0 : 1;
  const void *const target = *part[result];
  for (int i = 0; i < 3; i++) {
    if (!w.copied[i]) continue;
    if (i != result)
      if (const mt_status s =
              copy_order(call, t.v, i, *part[i], given[i], room, wanted[i]))
        return s;
    *part[i] = room;
    room += copy_bytes(t.v, i);
  }
  mt_status status;
  switch (w.how) {
  case method::direct: return run_direct(call, t.v, d);
  case method::gemm: {
    const mt_call exact = in_float32(call);
    return run_gemm(w.exact ? &exact : call, t.v, d, scratch);
  }
  case method::image: return run_image(call, t.v, d, scratch);
  case method::last: status = run_last(call, w.v, d, scratch); break;
  case method::product: status = run_products(call, w.v, d, scratch); break;
  default: status = cudnn_run(call, &w.plan, d, scratch);
  }
  if (status == MT_OK && w.copied[result])
    status = copy_order(call, t.v, result, *part[result], wanted[result],
                        const_cast<void *>(target), given[result]);
  if (status == MT_OK && w.after)
    status = run_after(call, call->out[0], t.data.bias, t.v.relu());
  return status;
}

// most[0] = the largest |a - b|, most[1] = the largest |b|, as bits: they begin as zeros.
__global__ void __launch_bounds__(256)
    difference_kernel(const float *a, const float *b, int64_t n, uint32_t *most) {
  float difference = 0, largest = 0;
  for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < n;
       i += int64_t(gridDim.x) * 256)
    difference = fmaxf(difference, fabsf(a[i] - b[i])),
    largest = fmaxf(largest, fabsf(b[i]));
  atomicMax(most, __float_as_uint(difference));
  atomicMax(most + 1, __float_as_uint(largest));
}

// Engines of cuDNN that round float32 more coarsely should say so; not all do.
bool is_judged(const mt_call *call, const conv &v, const choice &c) {
  return !c.settled && !call->deterministic && v.dtype == MT_F32 &&
         call->precision == 0 && call->cudnn;
}
size_t judge_bytes(const mt_call *call) {
  return round256(size_t(numel(call->out[0])) * sizeof(float)) + 256;
}
// Which relu of cuDNN's leaves a NaN as it is, a trial tells.
bool has_fused_relu(const way &w) {
  return w.how == method::cudnn && w.v.relu() && !w.after;
}
size_t trial_bytes(const mt_call *call, const task &t, const choice &c) {
  if (c.settled) return 0;
  return (is_judged(call, t.v, c) ? judge_bytes(call) : 0) +
         (t.v.relu() ? round256(size_t(t.v.k) * sizeof(float)) : 0);
}
size_t most_scratch(const choice &c) {
  size_t most = 0;
  for (const way &w : c.ways) most = std::max(most, w.total);
  return round256(most);
}

// Leave out the engines whose result is not what our own, the last way, makes.
void judge(const mt_call *call, const task &t, choice *c) {
  constexpr float allowed = 5e-5f; // beside the largest element
  char *room = static_cast<char *>(call->scratch) + most_scratch(*c);
  uint32_t *most = reinterpret_cast<uint32_t *>(room), seen[2];
  float *own = reinterpret_cast<float *>(room + 256);
  const int64_t n = numel(call->out[0]); // side by side, in some order
  const float *out = reinterpret_cast<const float *>(call->out[0]->data);
  const cudaStream_t stream = stream_of(call);
  if (run_way(call, t, c->ways.back()) != MT_OK) return;
  cudaMemcpyAsync(own, out, size_t(n) * sizeof(float), cudaMemcpyDefault, stream);
  for (auto w = c->ways.begin(); w != c->ways.end();) {
    bool good = w->how != method::cudnn;
    if (!good && run_way(call, t, *w) == MT_OK) {
      cudaMemsetAsync(most, 0, sizeof seen, stream);
      difference_kernel<<<blocks_for(n, 256, call->device), 256, 0, stream>>>(out, own,
                                                                              n, most);
      cudaMemcpyAsync(seen, most, sizeof seen, cudaMemcpyDefault, stream);
      float difference = 0, largest = 0;
      if (cudaStreamSynchronize(stream) == cudaSuccess) {
        memcpy(&difference, &seen[0], 4), memcpy(&largest, &seen[1], 4);
        good = difference <= allowed * largest;
      }
    }
    if (good) {
      ++w;
      continue;
    }
    cudnn_free(&w->plan);
    w = c->ways.erase(w);
  }
}

// Is the result NaN where the bias is? nans: room for one.
bool keeps_nan(const mt_call *call, const task &t, way &w, void *nans) {
  task bad = t;
  uint16_t first[2] = {}; // of an element of two or four bytes
  const size_t size = size_t(dtype_size(mt_dtype(t.v.dtype)));
  const cudaStream_t stream = stream_of(call);
  bad.data.bias = nans;
  if (cudaMemsetAsync(nans, 0xff, size_t(t.v.k) * size, stream) != cudaSuccess ||
      run_way(call, bad, w) != MT_OK ||
      cudaMemcpyAsync(first, call->out[0]->data, size, cudaMemcpyDefault, stream) !=
          cudaSuccess ||
      cudaStreamSynchronize(stream) != cudaSuccess)
    return false;
  const uint16_t high = size == 4 ? first[1] : first[0];
  return (high & 0x7fff) > (t.v.dtype == MT_F16 ? 0x7c00 : 0x7f80);
}

void leave_out_lost_nans(const mt_call *call, const task &t, choice *c) {
  const size_t judged = is_judged(call, t.v, *c) ? judge_bytes(call) : 0;
  char *nans = static_cast<char *>(call->scratch) + most_scratch(*c) + judged;
  for (auto w = c->ways.begin(); w != c->ways.end();) {
    if (!has_fused_relu(*w) || keeps_nan(call, t, *w, nans)) {
      ++w;
      continue;
    }
    cudnn_free(&w->plan);
    w = c->ways.erase(w);
  }
}

// Keep the fastest: each leaves the same result.
void settle(const mt_call *call, const task &t, choice *c) {
  if (t.v.relu()) leave_out_lost_nans(call, t, c);
  if (is_judged(call, t.v, *c)) judge(call, t, c);
  std::vector<way *> ways;
  for (way &w : c->ways) ways.push_back(&w);
  // The host's time counts where it is longer; for cuDNN that includes its pack of
  // pointers, which mostly are new.
  const int won = fastest(stream_of(call), int(ways.size()), [&](int i) {
    memset(ways[size_t(i)]->plan.at, 0, sizeof ways[size_t(i)]->plan.at);
    return run_way(call, t, *ways[size_t(i)]) == MT_OK;
  });
  auto best = std::prev(c->ways.end()); // our own, should all have failed
  if (won >= 0) best = std::next(c->ways.begin(), won);
  for (auto w = c->ways.begin(); w != c->ways.end();) {
    if (w == best) {
      ++w;
      continue;
    }
    cudnn_free(&w->plan);
    w = c->ways.erase(w);
  }
  c->settled = true;
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
         status != cudaStreamCaptureStatusNone;
}

mt_status run(const mt_call *call, const task &t) {
  std::lock_guard<std::mutex> hold(lock);
  choice *c = choice_for(call, t.v);
  if (!c->settled && !call->deterministic && !is_capturing(stream_of(call)))
    settle(call, t, c);
  mt_status status = MT_EUNSUPPORTED;
  for (way &w : c->ways)
    if ((status = run_way(call, t, w)) == MT_OK) break;
  return status;
}

// No product to add up: zeros, and the bias.
bool is_void(const task &t) {
  return t.v.n == 0 || t.v.k == 0 || t.v.depth() == 0 || t.v.windows() == 0 ||
         t.v.h == 0 || t.v.w == 0;
}

size_t scratch_of(const mt_call *call, const task &t) {
  if (numel(call->out[0]) == 0 || is_void(t)) return 0;
  std::lock_guard<std::mutex> hold(lock);
  const choice &c = *choice_for(call, t.v);
  return most_scratch(c) + trial_bytes(call, t, c);
}

mt_status run_task(const mt_call *call, const task &t) {
  mt_view *out = call->out[0];
  if (numel(out) == 0) return MT_OK;
  if (!is_void(t)) return run(call, t);
  CUDA_TRY(cudaMemsetAsync(out->data, 0, size_t(numel(out) * dtype_size(out->dtype)),
                           stream_of(call)));
  return t.v.after ? run_after(call, out, t.data.bias, t.v.relu()) : MT_OK;
}

// ---- entries ----------------------------------------------------------------------------

task forward_task(const mt_call *call) { // in: x, w, bias
  task t = make_task(pass::forward, call->in[0], call->in[1], call->out[0], call->in[2],
                     call->attr);
  if (call->attr[4].i[0]) t.v.after |= has_relu;
  return t;
}
task input_task(const mt_call *call) { // in: w, dy; attr: size and forward's
  return make_task(pass::input, call->out[0], call->in[0], call->in[1], nullptr,
                   call->attr + 1);
}
task weight_task(const mt_call *call) { // in: x, dy; attr: kernel and forward's
  return make_task(pass::weight, call->in[0], call->out[0], call->in[1], nullptr,
                   call->attr + 1);
}

template <task (*make)(const mt_call *)> mt_status run_op(const mt_call *call) {
  return run_task(call, make(call));
}
template <task (*make)(const mt_call *)> size_t op_scratch(const mt_call *call) {
  return scratch_of(call, make(call));
}

} // namespace

CUDA_ENTRY(conv2d) = {run_op<forward_task>, op_scratch<forward_task>, MT_FLOAT_MASK,
                      1u << 2 | MT_KEEPS_CHANNELS_LAST};
CUDA_ENTRY(conv2d_backward_input) = {run_op<input_task>, op_scratch<input_task>,
                                     MT_FLOAT_MASK, MT_KEEPS_CHANNELS_LAST};
CUDA_ENTRY(conv2d_backward_weight) = {run_op<weight_task>, op_scratch<weight_task>,
                                      MT_FLOAT_MASK, 0};
