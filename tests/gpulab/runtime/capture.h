#pragma once
// A capture takes what is put into its streams as nodes of a graph, and does nothing of it.

#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "streams.h"

namespace pretended {

/// Work in the order in which it was captured.
struct Graph {
  std::vector<Node> nodes;
};

struct Capture {
  unsigned long long id = 0;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  StreamPtr origin;
  bool broken = false;
  std::shared_ptr<Graph> graph;
  std::vector<lab::Work> undo;
  // By the streams' ids: how many nodes the graph had after a stream's last one, and after which of the
  // others' nodes a stream comes, by waiting.
  std::map<unsigned long long, size_t> last;
  std::map<unsigned long long, std::map<unsigned long long, size_t>> seen;
  std::vector<StreamPtr> members;

  void join(const StreamPtr& stream);
  cudaError_t take(const StreamPtr& stream, Node node);
  /// Whether the origin has waited for all that the other streams put in.
  bool is_joined() const;
};
using CapturePtr = std::shared_ptr<Capture>;

/// Of all captures, and of each stream's `capture`.
std::recursive_mutex& capture_lock();
CapturePtr capture_of(const StreamPtr& stream);
/// Its stream is being captured: an error, which breaks the capture.
cudaError_t refuse_captured(const StreamPtr& stream);
/// The same of a mark that was made in a capture.
cudaError_t refuse_captured(const MarkPtr& mark);
/// A call that may not be made while anything is captured, by the modes' rules; it breaks what it meets.
cudaError_t unsafe(const char* call);

/// For events: the mark of a stream that is being captured, when it is; and a stream that waits for one.
bool record_captured(const StreamPtr& stream, const MarkPtr& mark);
cudaError_t wait_captured(const StreamPtr& stream, const MarkPtr& mark, bool* done);

}  // namespace pretended
