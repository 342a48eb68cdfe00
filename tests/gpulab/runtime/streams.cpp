// All streams of the process. Nothing of it is ever destroyed.
#include "streams.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "capture.h"
#include "context.h"
#include "handles.h"
#include "inventory.h"

namespace pretended {
namespace {

struct Streams {
  Handles<Stream> handles;
  std::mutex mutex;
  std::vector<std::weak_ptr<Stream>> living;  // destroyed ones may have work
  std::array<StreamPtr, kMaxDevices> of_device;
};

Streams& streams() {
  static auto& all = *new Streams;
  return all;
}

StreamPtr remember(StreamPtr stream) {  // under the lock
  auto& living = streams().living;
  std::erase_if(living, [](const auto& one) { return one.expired(); });
  living.push_back(stream);
  return stream;
}

StreamPtr default_stream(int device) {
  const std::lock_guard lock(streams().mutex);
  StreamPtr& stream = streams().of_device[static_cast<size_t>(device)];
  if (!stream) stream = remember(std::make_shared<Stream>(device, 0, 0, true));
  return stream;
}

template <class Chosen>
std::vector<StreamPtr> living(const Chosen& chosen) {
  const std::lock_guard lock(streams().mutex);
  std::vector<StreamPtr> found;
  for (const auto& one : streams().living)
    if (auto stream = one.lock(); stream && chosen(*stream)) found.push_back(std::move(stream));
  return found;
}

bool waits_for_default(const Stream& stream) {
  return !stream.legacy && (stream.flags & cudaStreamNonBlocking) == 0;
}

// Those of its device that CUDA orders this one after.
std::vector<StreamPtr> before(const Stream& stream) {
  if (!stream.legacy && !waits_for_default(stream)) return {};
  return living([&](const Stream& other) {
    return other.device == stream.device && (stream.legacy ? waits_for_default(other) : other.legacy);
  });
}

bool is_captured(const StreamPtr& stream) {
  const std::lock_guard lock(capture_lock());
  return stream->capture != nullptr;
}

}  // namespace

cudaStream_t make_stream(int device, unsigned flags, int priority) {
  const std::lock_guard lock(streams().mutex);
  return streams().handles.add<cudaStream_t>(
      remember(std::make_shared<Stream>(device, flags, priority, false)));
}

StreamPtr find_stream(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return default_stream(this_device());
  if (handle == cudaStreamPerThread) lab::say("not imitated: cudaStreamPerThread");
  return streams().handles.find(handle);
}

bool destroy_stream(cudaStream_t handle) {
  const StreamPtr stream = streams().handles.remove(handle);
  if (stream) stream->close();
  return stream != nullptr;
}

unsigned long long submit(const StreamPtr& stream, Node node) {
  for (const StreamPtr& other : before(*stream)) {
    if (other->idle()) continue;
    stream->put({[other, length = other->length()] { other->wait_until(length); }, "wait", false});
  }
  return stream->put(std::move(node));
}

void demand_all() {
  for (const StreamPtr& stream : living([](const Stream&) { return true; })) stream->demand(stream->length());
}

void drain_device(int device) {
  demand_all();
  for (const StreamPtr& stream :
       living([&](const Stream& one) { return device < 0 || one.device == device; }))
    if (!is_captured(stream)) stream->drain();
}

bool all_idle() {
  const auto all = living([](const Stream&) { return true; });
  return std::all_of(all.begin(), all.end(), [](const StreamPtr& stream) { return stream->idle(); });
}

bool none_running() {
  const auto all = living([](const Stream&) { return true; });
  return std::none_of(all.begin(), all.end(), [](const StreamPtr& stream) { return stream->running(); });
}

void wake_streams() {
  for (const StreamPtr& stream : living([](const Stream&) { return true; })) stream->wake();
}

}  // namespace pretended
