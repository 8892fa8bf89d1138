// kernels/cuda/device.cu -- the GPU's own services: errors, contexts, memory, copies
// through pinned buffers, streams, events.
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/cudnn.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/jit.cuh"

namespace {

constexpr int max_gpus = 16;
thread_local char last_text[400];
thread_local int current = -1; // the device that this thread set last

struct {
  std::mutex lock;
  bool opened;
  int multiprocessors;
  char lost[256]; // what destroyed the context; "" while it lives
} gpus[max_gpus];

// Errors after which a context never works again.
bool is_sticky(cudaError_t e) {
  switch (e) {
  case cudaErrorIllegalAddress:
  case cudaErrorLaunchTimeout:
  case cudaErrorAssert:
  case cudaErrorHardwareStackError:
  case cudaErrorIllegalInstruction:
  case cudaErrorMisalignedAddress:
  case cudaErrorInvalidAddressSpace:
  case cudaErrorInvalidPc:
  case cudaErrorLaunchFailure:
  case cudaErrorECCUncorrectable: return true;
  default: return false;
  }
}

} // namespace

mt_status cuda_fail_text(mt_status status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(last_text, sizeof last_text, format, args);
  va_end(args);
  return status;
}

mt_status cuda_fail(cudaError_t error, const char *what) {
  cudaGetLastError(); // clears it, unless it is sticky
  if (is_sticky(error) && current >= 0 && current < max_gpus) {
    char suspects[192];
    jit_suspects(current, suspects, sizeof suspects);
    if (!gpus[current].lost[0])
      snprintf(gpus[current].lost, sizeof gpus[current].lost, "%s%s",
               cudaGetErrorString(error), suspects);
    return cuda_fail_text(MT_EDEVICE,
                          "cuda:%d is lost: %s; restart the program to use it", current,
                          gpus[current].lost);
  }
  if (error == cudaErrorMemoryAllocation)
    return cuda_fail_text(MT_EMEMORY, "out of memory on cuda:%d", current);
  const int length = static_cast<int>(strcspn(what, "("));
  return cuda_fail_text(MT_EDEVICE, "%s (%.*s)", cudaGetErrorString(error), length,
                        what);
}

int multiprocessors(int device) { return gpus[device].multiprocessors; }

namespace {

const char *error_text() { return last_text; }

const char *unavailable() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  static char text[256];
  cudaGetLastError();
  if (error == cudaSuccess && count > 0) return nullptr;
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (error == cudaErrorInsufficientDriver && driver > 0)
    snprintf(text, sizeof text,
             "the NVIDIA driver is too old: it serves CUDA %d.%d, %d.%d is needed",
             driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
             CUDART_VERSION % 1000 / 10);
  else if (driver == 0)
    snprintf(text, sizeof text, "no NVIDIA driver is installed (libcuda.so.1)");
  else if (error == cudaSuccess || error == cudaErrorNoDevice)
    snprintf(text, sizeof text, "the NVIDIA driver finds no GPU");
  else
    snprintf(text, sizeof text, "%s", cudaGetErrorString(error));
  return text;
}

int device_count() {
  static const int count = [] {
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess) n = 0;
    return n < max_gpus ? n : max_gpus;
  }();
  return count;
}

mt_status open_first(int device) {
  CUDA_TRY(cudaSetDevice(device));
  current = device;
  int sms = 0;
  CUDA_TRY(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
  gpus[device].multiprocessors = sms;
  CUDA_TRY(cudaFree(nullptr)); // makes the context
  for (int other = 0; other < device_count(); other++) {
    int can = 0;
    if (other == device || !gpus[other].opened) continue;
    if (cudaDeviceCanAccessPeer(&can, device, other) == cudaSuccess && can)
      cudaDeviceEnablePeerAccess(other, 0);
  }
  cudaGetLastError();
  gpus[device].opened = true;
  return MT_OK;
}

mt_status open_device(int device) {
  if (gpus[device].lost[0])
    return cuda_fail_text(MT_EDEVICE,
                          "cuda:%d is lost: %s; restart the program to use it", device,
                          gpus[device].lost);
  if (current == device) return MT_OK;
  if (!gpus[device].opened) {
    std::lock_guard<std::mutex> hold(gpus[device].lock);
    if (!gpus[device].opened) return open_first(device);
  }
  CUDA_TRY(cudaSetDevice(device));
  current = device;
  return MT_OK;
}

mt_status health(int device) {
  current = -1;
  return open_device(device);
}

mt_status describe(int device, mt_device_info *info) {
  cudaDeviceProp p;
  *info = {};
  if (const mt_status s = open_device(device)) return s;
  CUDA_TRY(cudaGetDeviceProperties(&p, device));
  snprintf(info->name, sizeof info->name, "%.63s", p.name);
  info->major = p.major, info->minor = p.minor;
  info->multiprocessors = p.multiProcessorCount;
  CUDA_TRY(cudaMemGetInfo(&info->free_bytes, &info->total_bytes));
  CUDA_TRY(cudaDriverGetVersion(&info->driver));
  CUDA_TRY(cudaRuntimeGetVersion(&info->runtime));
  return MT_OK;
}

// ---- memory ---------------------------------------------------------------------------

void *host_alloc(size_t bytes) {
  void *p = nullptr;
  if (cudaHostAlloc(&p, bytes, cudaHostAllocPortable | cudaHostAllocMapped) ==
      cudaSuccess)
    return p;
  cudaGetLastError();
  return nullptr;
}

void host_free(void *p) {
  if (cudaFreeHost(p) != cudaSuccess) cudaGetLastError();
}

int host_is_pinned(const void *p) {
  cudaPointerAttributes a;
  if (cudaPointerGetAttributes(&a, p) == cudaSuccess)
    return a.type == cudaMemoryTypeHost;
  cudaGetLastError();
  return 0;
}

// Pageable memory is copied in pieces through pinned buffers. Several threads share the
// pieces, since one core copies at a third of what the bus carries; each has two buffers in
// turn, so that it fills or empties one while the other is on its way.
constexpr size_t piece = size_t(2) << 20; // bytes
constexpr size_t direct = 65536; // up to this the driver's own staging is as good
constexpr int most_lanes = 8;

struct lane {
  char *buffer[2];
  cudaEvent_t done[2];
};
struct staging {
  std::mutex lock;
  lane lanes[most_lanes];
};
staging stages[max_gpus];

mt_status open_lane(lane *q) {
  for (int i = 0; i < 2; i++) {
    if (!q->buffer[i]) q->buffer[i] = static_cast<char *>(host_alloc(piece));
    if (!q->buffer[i]) return cuda_fail_text(MT_EMEMORY, "no pinned host memory");
    if (!q->done[i])
      CUDA_TRY(cudaEventCreateWithFlags(&q->done[i], cudaEventDisableTiming));
  }
  return MT_OK;
}

// What lane `first` of `lanes` does: pieces first, first + lanes, ...
struct transfer {
  cudaStream_t stream;
  char *device_side, *host_side;
  size_t bytes;
  int lanes;

  size_t length(size_t at) const { return std::min(piece, bytes - at); }

  cudaError_t send(lane *q, size_t at, int turn, cudaMemcpyKind kind) const {
    char *there = device_side + at, *here = q->buffer[turn];
    const cudaError_t e = kind == cudaMemcpyHostToDevice
                              ? cudaMemcpyAsync(there, here, length(at), kind, stream)
                              : cudaMemcpyAsync(here, there, length(at), kind, stream);
    return e == cudaSuccess ? cudaEventRecord(q->done[turn], stream) : e;
  }

  cudaError_t to_device(lane *q, int first) const {
    int turn = 0;
    for (size_t at = first * piece; at < bytes; at += lanes * piece, turn ^= 1) {
      cudaError_t e = cudaEventSynchronize(q->done[turn]); // free again
      if (e != cudaSuccess) return e;
      memcpy(q->buffer[turn], host_side + at, length(at));
      e = send(q, at, turn, cudaMemcpyHostToDevice);
      if (e != cudaSuccess) return e;
    }
    return cudaSuccess;
  }

  cudaError_t to_host(lane *q, int first) const {
    const size_t step = lanes * piece;
    int turn = 0;
    size_t at = first * piece;
    if (at >= bytes) return cudaSuccess;
    cudaError_t e = send(q, at, turn, cudaMemcpyDeviceToHost);
    for (; e == cudaSuccess && at < bytes; at += step, turn ^= 1) {
      if (at + step < bytes) e = send(q, at + step, turn ^ 1, cudaMemcpyDeviceToHost);
      if (e == cudaSuccess) e = cudaEventSynchronize(q->done[turn]);
      if (e == cudaSuccess) memcpy(host_side + at, q->buffer[turn], length(at));
    }
    return e;
  }

  cudaError_t run(lane *q, int first, mt_copy_kind kind) const {
    return kind == MT_COPY_TO_DEVICE ? to_device(q, first) : to_host(q, first);
  }
};

mt_status staged_copy(int device, transfer t, mt_copy_kind kind) {
  staging &s = stages[device];
  std::lock_guard<std::mutex> hold(s.lock);
  const size_t pieces = (t.bytes + piece - 1) / piece;
  const unsigned cores = std::thread::hardware_concurrency();
  t.lanes = int(std::min(pieces, size_t(std::clamp(int(cores / 2), 1, most_lanes))));
  for (int i = 0; i < t.lanes; i++)
    if (const mt_status status = open_lane(&s.lanes[i])) return status;
  cudaError_t error[most_lanes] = {};
  std::thread team[most_lanes];
  for (int i = 1; i < t.lanes; i++) {
    auto work = [&s, &t, &error, device, kind, i] {
      error[i] = cudaSetDevice(device);
      if (error[i] == cudaSuccess) error[i] = t.run(&s.lanes[i], i, kind);
    };
    try {
      team[i] = std::thread(work);
    } catch (const std::system_error &) { // no more threads to be had
      work();
    }
  }
  error[0] = t.run(&s.lanes[0], 0, kind);
  for (int i = 1; i < t.lanes; i++)
    if (team[i].joinable()) team[i].join();
  for (int i = 0; i < t.lanes; i++) CUDA_TRY(error[i]);
  return MT_OK;
}

mt_status copy_bytes(int device, void *stream, mt_copy_kind kind, void *dst,
                     const void *src, size_t bytes, int non_blocking) {
  if (const mt_status s = open_device(device)) return s;
  const cudaStream_t on = static_cast<cudaStream_t>(stream);
  const void *host = kind == MT_COPY_TO_DEVICE ? src : dst;
  if (kind != MT_COPY_WITHIN && bytes > direct && !host_is_pinned(host))
    return staged_copy(
        device,
        {on,
         static_cast<char *>(kind == MT_COPY_TO_DEVICE ? dst : const_cast<void *>(src)),
         static_cast<char *>(const_cast<void *>(host)), bytes, 1},
        kind);
  CUDA_TRY(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, on));
  // A pinned source may be reused when the call returns, unless the caller takes care.
  if (kind == MT_COPY_TO_DEVICE && !non_blocking && bytes > direct)
    CUDA_TRY(cudaStreamSynchronize(on));
  return MT_OK;
}

// ---- streams and events ---------------------------------------------------------------

mt_status stream_create(int device, void **stream) {
  cudaStream_t s = nullptr;
  if (const mt_status status = open_device(device)) return status;
  CUDA_TRY(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  *stream = s;
  return MT_OK;
}

mt_status stream_destroy(int device, void *stream) {
  if (const mt_status status = open_device(device)) return status;
  CUDA_TRY(cudaStreamDestroy(static_cast<cudaStream_t>(stream)));
  return MT_OK;
}

mt_status stream_synchronize(int device, void *stream) {
  if (const mt_status status = open_device(device)) return status;
  CUDA_TRY(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
  jit_synchronized(device, stream, false);
  return MT_OK;
}

mt_status device_synchronize(int device) {
  if (const mt_status status = open_device(device)) return status;
  CUDA_TRY(cudaDeviceSynchronize());
  jit_synchronized(device, nullptr, true);
  return MT_OK;
}

mt_status event_create(int device, int timing, void **event) {
  cudaEvent_t e = nullptr;
  if (const mt_status status = open_device(device)) return status;
  CUDA_TRY(
      cudaEventCreateWithFlags(&e, timing ? cudaEventDefault : cudaEventDisableTiming));
  *event = e;
  return MT_OK;
}

void event_destroy(int device, void *event) {
  if (open_device(device) != MT_OK) return;
  if (cudaEventDestroy(static_cast<cudaEvent_t>(event)) != cudaSuccess)
    cudaGetLastError();
}

mt_status event_record(int device, void *event, void *stream) {
  if (const mt_status status = open_device(device)) return status;
  CUDA_TRY(cudaEventRecord(static_cast<cudaEvent_t>(event),
                           static_cast<cudaStream_t>(stream)));
  return MT_OK;
}

mt_status event_wait(int device, void *stream, void *event) {
  if (const mt_status status = open_device(device)) return status;
  CUDA_TRY(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream),
                               static_cast<cudaEvent_t>(event), 0));
  return MT_OK;
}

int event_done(int device, void *event) {
  if (open_device(device) != MT_OK) return 1;
  const cudaError_t error = cudaEventQuery(static_cast<cudaEvent_t>(event));
  if (error != cudaSuccess) cudaGetLastError();
  return error != cudaErrorNotReady;
}

mt_status event_synchronize(int device, void *event) {
  if (const mt_status status = open_device(device)) return status;
  CUDA_TRY(cudaEventSynchronize(static_cast<cudaEvent_t>(event)));
  return MT_OK;
}

mt_status event_elapsed(int device, void *from, void *to, double *ms) {
  float elapsed = 0;
  if (const mt_status status = open_device(device)) return status;
  CUDA_TRY(cudaEventElapsedTime(&elapsed, static_cast<cudaEvent_t>(from),
                                static_cast<cudaEvent_t>(to)));
  *ms = elapsed;
  return MT_OK;
}

} // namespace

const mt_device_api cuda_device_api = {
    error_text,         unavailable,        device_count,
    open_device,        describe,           health,
    host_alloc,         host_free,          host_is_pinned,
    copy_bytes,         stream_create,      stream_destroy,
    stream_synchronize, device_synchronize, event_create,
    event_destroy,      event_record,       event_wait,
    event_done,         event_synchronize,  event_elapsed,
    cudnn_version,
};

void *cuda_raw_alloc(int device, size_t bytes) {
  void *p = nullptr;
  if (open_device(device) != MT_OK) return nullptr;
  if (cudaMalloc(&p, bytes) == cudaSuccess) return p;
  cudaGetLastError();
  return nullptr;
}

void cuda_raw_free(int device, void *p, size_t bytes) {
  (void)bytes;
  if (open_device(device) != MT_OK) return;
  if (cudaFree(p) != cudaSuccess) cudaGetLastError();
}
