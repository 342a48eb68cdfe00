#include <chrono>
#include <condition_variable>
#include <mutex>

#include "capture.h"
#include "devices.h"
#include "settings.h"
#include "streams.h"

namespace pretended {
namespace {

std::mutex& lock_of_marks() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

std::condition_variable& changed() {
  static auto& condition = *new std::condition_variable;
  return condition;
}

}  // namespace

void finish(const MarkPtr& mark) {
  {
    const std::lock_guard lock(lock_of_marks());
    mark->done = true;
    mark->at = std::chrono::steady_clock::now();
  }
  changed().notify_all();
}

bool is_done(const MarkPtr& mark) {
  const std::lock_guard lock(lock_of_marks());
  return mark->done;
}

void wait_for(const MarkPtr& mark) {
  if (const auto stream = mark->stream.lock()) stream->demand(mark->position);
  std::unique_lock lock(lock_of_marks());
  changed().wait(lock, [&] { return mark->done || ended(); });
}

void wake_marks() {
  { const std::lock_guard lock(lock_of_marks()); }
  changed().notify_all();
}

}  // namespace pretended

using namespace pretended;

namespace {

struct Event {
  const unsigned flags;
  const int device;
  std::mutex mutex;
  MarkPtr last;  // record of it

  Event(unsigned with_flags, int of_device) : flags(with_flags), device(of_device) {}
  MarkPtr mark() {
    const std::lock_guard lock(mutex);
    return last;
  }
  void set(MarkPtr mark) {
    const std::lock_guard lock(mutex);
    last = std::move(mark);
  }
};

Handles<Event>& events() {
  static auto& all = *new Handles<Event>;
  return all;
}

void put_mark(const StreamPtr& stream, const MarkPtr& mark) {
  if (stream->idle()) return finish(mark);
  mark->stream = stream;
  mark->position = submit(stream, {[mark] { finish(mark); }, "event"});
}

cudaError_t not_imitated(const char* what) {
  lab::say("not imitated: %s", what);
  return give(cudaErrorNotSupported);
}

// Why an event can be neither asked nor waited for by the host.
cudaError_t refuse(const MarkPtr& mark, const char* call) {
  if (const auto error = refuse_captured(mark)) return error;
  if (const auto error = unsafe(call)) return error;
  return state_of(mark->device);
}

}  // namespace

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (const auto error = enter()) return give(error);
  *event = events().add<cudaEvent_t>(std::make_shared<Event>(flags, this_device()));
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return give(events().remove(event) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream_handle, unsigned flags) {
  const auto stream = find_stream(stream_handle);
  const auto event = events().find(handle);
  if (!stream || !event) return give(cudaErrorInvalidResourceHandle);
  if (const auto error = state_of(stream->device)) return give(error);
  if (event->device != stream->device) {
    lab::say("an event of device %d recorded on a stream of device %d", event->device, stream->device);
    return give(cudaErrorInvalidResourceHandle);
  }
  auto mark = std::make_shared<Mark>();
  mark->device = stream->device;
  const bool captured = record_captured(stream, mark);
  if (captured && (flags & cudaEventRecordExternal) != 0) return not_imitated("cudaEventRecordExternal");
  if (!captured) put_mark(stream, mark);
  event->set(mark);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned flags) {
  const auto stream = find_stream(handle);
  const auto event = events().find(event_handle);
  if (!stream || !event) return give(cudaErrorInvalidResourceHandle);
  if (const auto error = state_of(stream->device)) return give(error);
  const auto mark = event->mark();
  if (!mark) return cudaSuccess;
  if (capture_of(stream) && (flags & cudaEventWaitExternal) != 0)
    return not_imitated("cudaEventWaitExternal");
  bool is_handled = false;
  const auto error = wait_captured(stream, mark, &is_handled);
  if (error || is_handled) return give(error);
  static const bool broken = number("LAB_BREAK_WAIT", 0) != 0;
  if (!broken && !is_done(mark)) submit(stream, {[mark] { wait_for(mark); }, "wait"});
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  const auto event = events().find(handle);
  if (!event) return give(cudaErrorInvalidResourceHandle);
  const auto mark = event->mark();
  if (!mark) return cudaSuccess;
  if (const auto error = refuse(mark, "cudaEventQuery")) return give(error);
  return is_done(mark) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  const auto event = events().find(handle);
  if (!event) return give(cudaErrorInvalidResourceHandle);
  const auto mark = event->mark();
  if (!mark) return cudaSuccess;
  if (const auto error = refuse(mark, "cudaEventSynchronize")) return give(error);
  wait_for(mark);
  return give(state_of(mark->device));
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  const auto first = events().find(from), second = events().find(to);
  if (!first || !second || ((first->flags | second->flags) & cudaEventDisableTiming) != 0)
    return give(cudaErrorInvalidResourceHandle);
  const auto begin = first->mark(), end = second->mark();
  if (!begin || !end) return give(cudaErrorInvalidResourceHandle);
  if (!is_done(begin) || !is_done(end)) return give(cudaErrorNotReady);
  *ms = std::chrono::duration<float, std::milli>(end->at - begin->at).count();
  return cudaSuccess;
}

}  // extern "C"
