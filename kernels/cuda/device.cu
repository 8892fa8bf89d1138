// kernels/cuda/device.cu -- the GPU's own services: errors, contexts, memory, copies
// through pinned buffers, streams, events.
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/device.cuh"

namespace {

constexpr int max_gpus = 16;
thread_local char last_text[256];
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
    snprintf(gpus[current].lost, sizeof gpus[current].lost, "%s",
             cudaGetErrorString(error));
    return cuda_fail_text(MT_EDEVICE,
                          "cuda:%d is lost: %s; restart the program to use it", current,
                          cudaGetErrorString(error));
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

// Pageable memory is copied in pieces through pinned buffers, two in turn for each
// direction: one is filled by the CPU while the other is on its way.
constexpr size_t piece = size_t(8) << 20; // bytes
constexpr size_t direct = 65536; // up to this the driver's own staging is as good
constexpr int ring = 2;

struct staging {
  std::mutex lock;
  char *buffer[ring];
  cudaEvent_t done[ring];
};
staging stages[max_gpus];

mt_status stage_open(staging *s) {
  for (int i = 0; i < ring; i++) {
    if (!s->buffer[i]) s->buffer[i] = static_cast<char *>(host_alloc(piece));
    if (!s->buffer[i]) return cuda_fail_text(MT_EMEMORY, "no pinned host memory");
    if (!s->done[i])
      CUDA_TRY(cudaEventCreateWithFlags(&s->done[i], cudaEventDisableTiming));
  }
  return MT_OK;
}

// One core copies at a third of what the bus carries: large pieces are shared by four.
void copy_in_threads(char *dst, const char *src, size_t bytes) {
  constexpr size_t workers = 4;
  if (bytes < (size_t(2) << 20)) {
    memcpy(dst, src, bytes);
    return;
  }
  std::thread team[workers - 1];
  const size_t part = (bytes / workers + 4095) / 4096 * 4096;
  for (size_t i = 0; i + 1 < workers; i++)
    team[i] = std::thread([=] { memcpy(dst + i * part, src + i * part, part); });
  const size_t done = part * (workers - 1);
  memcpy(dst + done, src + done, bytes - done);
  for (std::thread &t : team) t.join();
}

mt_status staged_to_device(staging *s, cudaStream_t stream, char *dst, const char *src,
                           size_t bytes) {
  std::lock_guard<std::mutex> hold(s->lock);
  if (const mt_status status = stage_open(s)) return status;
  int turn = 0;
  for (size_t at = 0; at < bytes; at += piece, turn = (turn + 1) % ring) {
    const size_t n = bytes - at < piece ? bytes - at : piece;
    CUDA_TRY(cudaEventSynchronize(s->done[turn])); // free again
    copy_in_threads(s->buffer[turn], src + at, n);
    CUDA_TRY(
        cudaMemcpyAsync(dst + at, s->buffer[turn], n, cudaMemcpyHostToDevice, stream));
    CUDA_TRY(cudaEventRecord(s->done[turn], stream));
  }
  return MT_OK;
}

mt_status staged_to_host(staging *s, cudaStream_t stream, char *dst, const char *src,
                         size_t bytes) {
  std::lock_guard<std::mutex> hold(s->lock);
  if (const mt_status status = stage_open(s)) return status;
  const size_t pieces = (bytes + piece - 1) / piece;
  auto length = [&](size_t i) { return i + 1 < pieces ? piece : bytes - i * piece; };
  for (size_t i = 0; i < pieces + 1; i++) {
    if (i < pieces) { // send for the next piece, then unpack the one before
      const int turn = int(i % ring);
      CUDA_TRY(cudaMemcpyAsync(s->buffer[turn], src + i * piece, length(i),
                               cudaMemcpyDeviceToHost, stream));
      CUDA_TRY(cudaEventRecord(s->done[turn], stream));
    }
    if (i > 0) {
      const int turn = int((i - 1) % ring);
      CUDA_TRY(cudaEventSynchronize(s->done[turn]));
      copy_in_threads(dst + (i - 1) * piece, s->buffer[turn], length(i - 1));
    }
  }
  return MT_OK;
}

mt_status copy_bytes(int device, void *stream, mt_copy_kind kind, void *dst,
                     const void *src, size_t bytes, int non_blocking) {
  if (const mt_status s = open_device(device)) return s;
  const cudaStream_t on = static_cast<cudaStream_t>(stream);
  const void *host = kind == MT_COPY_TO_DEVICE ? src : dst;
  if (kind != MT_COPY_WITHIN && bytes > direct && !host_is_pinned(host))
    return kind == MT_COPY_TO_DEVICE
               ? staged_to_device(&stages[device], on, static_cast<char *>(dst),
                                  static_cast<const char *>(src), bytes)
               : staged_to_host(&stages[device], on, static_cast<char *>(dst),
                                static_cast<const char *>(src), bytes);
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
  return MT_OK;
}

mt_status device_synchronize(int device) {
  if (const mt_status status = open_device(device)) return status;
  CUDA_TRY(cudaDeviceSynchronize());
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
