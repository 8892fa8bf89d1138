// kernels/cuda/graphs.cu -- CUDA graphs: recorded from a stream of their own, instantiated,
// launched; and the numbers on the device that change from one replay to the next.
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/graphs.cuh"

namespace {

mt_status begin(int device, void **stream) {
  cudaStream_t s = nullptr;
  if (const mt_status status = cuda_device_api.open(device)) return status;
  // Non-blocking: work on the default stream, of this or another thread, is no concern.
  CUDA_TRY(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  const cudaError_t e = cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed);
  if (e != cudaSuccess) {
    cudaStreamDestroy(s);
    return cuda_fail(e, "cudaStreamBeginCapture");
  }
  *stream = s;
  return MT_OK;
}

mt_status instantiate(cudaGraph_t graph, void **exec, int *nodes) {
  cudaGraphExec_t made = nullptr;
  size_t n = 0;
  CUDA_TRY(cudaGraphGetNodes(graph, nullptr, &n));
  CUDA_TRY(cudaGraphInstantiate(&made, graph, 0));
  *exec = made, *nodes = int(n);
  return MT_OK;
}

mt_status end(int device, void *stream, void **exec, int *nodes) {
  const cudaStream_t s = static_cast<cudaStream_t>(stream);
  cudaGraph_t graph = nullptr;
  mt_status status = cuda_device_api.open(device);
  const cudaError_t ended = cudaStreamEndCapture(s, &graph);
  if (ended != cudaSuccess) cudaGetLastError();
  if (status == MT_OK && exec) {
    if (ended == cudaSuccess && graph)
      status = instantiate(graph, exec, nodes);
    else
      status =
          cuda_fail(ended == cudaSuccess ? cudaErrorStreamCaptureInvalidated : ended,
                    "cudaStreamEndCapture");
  }
  if (graph) cudaGraphDestroy(graph);
  cudaStreamDestroy(s);
  cudaGetLastError(); // an abandoned recording leaves errors that say nothing
  return status;
}

mt_status dependencies(int device, void *stream, void **node, int *n) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t *found = nullptr;
  size_t count = 0;
  if (const mt_status s = cuda_device_api.open(device)) return s;
  const cudaStream_t on = static_cast<cudaStream_t>(stream);
#if CUDART_VERSION >= 13000
  const cudaGraphEdgeData *edges = nullptr;
  CUDA_TRY(
      cudaStreamGetCaptureInfo(on, &status, nullptr, nullptr, &found, &edges, &count));
#else
  CUDA_TRY(cudaStreamGetCaptureInfo_v2(on, &status, nullptr, nullptr, &found, &count));
#endif
  if (status != cudaStreamCaptureStatusActive || count > size_t(*n))
    return cuda_fail_text(MT_EUNSUPPORTED, "the stream's dependencies are not known");
  for (size_t i = 0; i < count; i++) node[i] = found[i];
  *n = int(count);
  return MT_OK;
}

mt_status depend(int device, void *stream, void *const *node, int n) {
  if (const mt_status s = cuda_device_api.open(device)) return s;
  const cudaStream_t on = static_cast<cudaStream_t>(stream);
  auto *list = reinterpret_cast<cudaGraphNode_t *>(const_cast<void **>(node));
#if CUDART_VERSION >= 13000
  CUDA_TRY(cudaStreamUpdateCaptureDependencies(on, list, nullptr, size_t(n),
                                               cudaStreamSetCaptureDependencies));
#else
  CUDA_TRY(cudaStreamUpdateCaptureDependencies(on, list, size_t(n),
                                               cudaStreamSetCaptureDependencies));
#endif
  return MT_OK;
}

mt_status launch(int device, void *exec, void *stream) {
  if (const mt_status status = cuda_device_api.open(device)) return status;
  CUDA_TRY(cudaGraphLaunch(static_cast<cudaGraphExec_t>(exec),
                           static_cast<cudaStream_t>(stream)));
  return MT_OK;
}

void destroy(int device, void *exec) {
  if (cuda_device_api.open(device) != MT_OK) return;
  if (cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(exec)) != cudaSuccess)
    cudaGetLastError();
}

__global__ void advance_kernel(mt_graph_values *v, uint64_t drawn) {
  if (threadIdx.x < MT_GRAPH_SLOTS) v->slot[threadIdx.x] += v->step[threadIdx.x];
  if (threadIdx.x == 0) v->replay.positions += drawn, v->replay.count++;
}

mt_status advance(int device, void *stream, mt_graph_values *values, uint64_t drawn) {
  if (const mt_status status = cuda_device_api.open(device)) return status;
  advance_kernel<<<1, MT_GRAPH_SLOTS, 0, static_cast<cudaStream_t>(stream)>>>(values,
                                                                              drawn);
  return launched();
}

__global__ void set_kernel(mt_graph_values *v,
                           const __grid_constant__ mt_graph_values from) {
  const int i = threadIdx.x;
  if (i < MT_GRAPH_SLOTS) v->slot[i] = from.slot[i], v->step[i] = from.step[i];
  if (i == 0) v->replay = from.replay;
}

mt_status set(int device, void *stream, mt_graph_values *values,
              const mt_graph_values *from) {
  if (const mt_status status = cuda_device_api.open(device)) return status;
  set_kernel<<<1, MT_GRAPH_SLOTS, 0, static_cast<cudaStream_t>(stream)>>>(values,
                                                                          *from);
  return launched();
}

} // namespace

const mt_graphs cuda_graphs = {begin,  end,     dependencies, depend,
                               launch, destroy, advance,      set};
