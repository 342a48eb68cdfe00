#include "capture.h"

#include <algorithm>
#include <utility>

#include "devices.h"

namespace pretended {
namespace {

thread_local cudaStreamCaptureMode this_mode = cudaStreamCaptureModeGlobal;

// Those that were captured, and those that were made ready to launch.
Handles<Graph>& graphs() {
  static auto& all = *new Handles<Graph>;
  return all;
}

std::vector<CapturePtr>& under_way() {
  static auto& captures = *new std::vector<CapturePtr>;
  return captures;
}

bool is_under_way(const CapturePtr& capture) {
  return std::find(under_way().begin(), under_way().end(), capture) != under_way().end();
}

bool forbids(const Capture& capture) {
  const bool own = capture.thread == std::this_thread::get_id();
  return (capture.mode == cudaStreamCaptureModeGlobal && this_mode == cudaStreamCaptureModeGlobal) ||
         (own && capture.mode != cudaStreamCaptureModeRelaxed);
}

CapturePtr begin(const StreamPtr& stream, cudaStreamCaptureMode mode) {
  auto capture = std::make_shared<Capture>();
  capture->id = next_id();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = stream;
  capture->graph = std::make_shared<Graph>();
  graphs().add<cudaGraph_t>(capture->graph);
  capture->join(stream);
  return capture;
}

cudaError_t why_not_end(const StreamPtr& stream) {
  const auto& capture = stream->capture;
  if (!capture) return cudaErrorIllegalState;
  if (capture->origin != stream) return cudaErrorStreamCaptureUnmatched;
  const bool elsewhere = capture->thread != std::this_thread::get_id();
  return capture->mode != cudaStreamCaptureModeRelaxed && elsewhere ? cudaErrorStreamCaptureWrongThread
                                                                    : cudaSuccess;
}

void release(const CapturePtr& capture) {
  for (const StreamPtr& member : capture->members) member->capture = nullptr;
  capture->members.clear();
  std::erase(under_way(), capture);
}

}  // namespace

std::recursive_mutex& capture_lock() {
  static auto& mutex = *new std::recursive_mutex;
  return mutex;
}

void Capture::join(const StreamPtr& stream) {
  last.try_emplace(stream->id, 0);
  if (!stream->capture) members.push_back(stream);
}

cudaError_t Capture::take(const StreamPtr& stream, Node node) {
  if (broken) return cudaErrorStreamCaptureInvalidated;
  graph->nodes.push_back(std::move(node));
  last[stream->id] = graph->nodes.size();
  return cudaSuccess;
}

bool Capture::is_joined() const {
  const auto found = seen.find(origin->id);
  return std::all_of(last.begin(), last.end(), [&](const auto& one) {
    if (one.first == origin->id) return true;
    return found != seen.end() && found->second.contains(one.first) &&
           found->second.at(one.first) >= one.second;
  });
}

CapturePtr capture_of(const StreamPtr& stream) {
  const std::lock_guard lock(capture_lock());
  return stream->capture;
}

cudaError_t refuse_captured(const StreamPtr& stream) {
  const std::lock_guard lock(capture_lock());
  if (!stream->capture) return cudaSuccess;
  stream->capture->broken = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t refuse_captured(const MarkPtr& mark) {
  if (!mark->capture) return cudaSuccess;
  const std::lock_guard lock(capture_lock());
  mark->capture->broken = true;
  return cudaErrorCapturedEvent;
}

cudaError_t unsafe(const char* call) {
  const std::lock_guard lock(capture_lock());
  if (this_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  cudaError_t result = cudaSuccess;
  for (const CapturePtr& capture : under_way()) {
    if (!forbids(*capture)) continue;
    capture->broken = true;
    lab::say("%s broke a stream capture", call);
    result = cudaErrorStreamCaptureUnsupported;
  }
  return result;
}

bool record_captured(const StreamPtr& stream, const MarkPtr& mark) {
  const std::lock_guard lock(capture_lock());
  const auto& capture = stream->capture;
  if (!capture) return false;
  mark->capture = capture;
  mark->seen = capture->seen[stream->id];
  mark->seen[stream->id] = capture->last[stream->id];
  return true;
}

cudaError_t wait_captured(const StreamPtr& stream, const MarkPtr& mark, bool* done) {
  const std::lock_guard lock(capture_lock());
  *done = mark->capture || stream->capture;
  if (!mark->capture) {
    if (!stream->capture) return cudaSuccess;
    stream->capture->broken = true;  // it would wait for what is not captured
    return cudaErrorStreamCaptureIsolation;
  }
  if (stream->capture && stream->capture != mark->capture) return cudaErrorStreamCaptureMerge;
  if (!is_under_way(mark->capture)) return cudaSuccess;
  if (stream->legacy) return cudaErrorStreamCaptureImplicit;
  mark->capture->join(stream);
  stream->capture = mark->capture;
  auto& seen = mark->capture->seen[stream->id];
  for (const auto& [other, nodes] : mark->seen) seen[other] = std::max(seen[other], nodes);
  return cudaSuccess;
}

}  // namespace pretended

using namespace pretended;

namespace lab {

bool capturing(cudaStream_t handle) {
  const auto stream = find_stream(handle);
  return stream && capture_of(stream);
}

void undo(cudaStream_t handle, Work work) {
  const auto stream = find_stream(handle);
  const std::lock_guard lock(capture_lock());
  if (stream && stream->capture) stream->capture->undo.push_back(std::move(work));
}

}  // namespace lab

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, this_mode);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const auto stream = find_stream(handle);
  if (!stream) return give(cudaErrorInvalidResourceHandle);
  if (const auto error = state_of(stream->device)) return give(error);
  if (stream->legacy) return give(cudaErrorStreamCaptureUnsupported);
  const std::lock_guard lock(capture_lock());
  if (stream->capture) return give(cudaErrorIllegalState);
  stream->capture = begin(stream, mode);
  under_way().push_back(stream->capture);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  *graph = nullptr;
  const auto stream = find_stream(handle);
  if (!stream) return give(cudaErrorInvalidResourceHandle);
  std::unique_lock lock(capture_lock());
  if (const auto error = why_not_end(stream)) return give(error);
  const CapturePtr capture = stream->capture;
  release(capture);
  lock.unlock();
  for (; !capture->undo.empty(); capture->undo.pop_back()) capture->undo.back()();
  const auto made = std::exchange(capture->graph, nullptr);  // a mark may keep the capture for long
  const auto error = capture->broken         ? cudaErrorStreamCaptureInvalidated
                     : !capture->is_joined() ? cudaErrorStreamCaptureUnjoined
                                             : cudaSuccess;
  if (error) {
    graphs().remove(made.get());
    return give(error);
  }
  *graph = reinterpret_cast<cudaGraph_t>(made.get());
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  const auto stream = find_stream(handle);
  if (!stream) return give(cudaErrorInvalidResourceHandle);
  if (const auto capture = capture_of(stream))
    *status = capture->broken ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

// The nodes have no handles: who asks what the next one depends on gets none.
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges,
                                     size_t* count) {
  if (graph) *graph = nullptr;
  if (dependencies) *dependencies = nullptr;
  if (edges) *edges = nullptr;
  if (count) *count = 0;
  if (const auto error = cudaStreamIsCapturing(handle, status)) return error;
  const auto capture = capture_of(find_stream(handle));
  if (!capture) return cudaSuccess;
  if (id) *id = capture->id;
  if (graph) *graph = reinterpret_cast<cudaGraph_t>(capture->graph.get());
  return cudaSuccess;
}

// Counts them; there are no handles to give.
cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, size_t* count) {
  const auto graph = graphs().find(handle);
  if (!graph) return give(cudaErrorInvalidValue);
  if (nodes) return give(cudaErrorNotSupported);
  *count = graph->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t handle, unsigned long long) {
  const auto graph = graphs().find(handle);
  if (!graph) return give(cudaErrorInvalidValue);
  *made = graphs().add<cudaGraphExec_t>(std::make_shared<Graph>(*graph));
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph,
                                          unsigned long long flags) {
  return cudaGraphInstantiate(made, graph, flags);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream) {
  const auto graph = graphs().find(handle);
  if (!graph) return give(cudaErrorInvalidValue);
  const auto work = [graph] {
    for (const Node& node : graph->nodes) node.work();
  };
  return lab::enqueue(stream, work, "graph");
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return give(graphs().remove(graph) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return give(graphs().remove(graph) ? cudaSuccess : cudaErrorInvalidValue);
}

}  // extern "C"
