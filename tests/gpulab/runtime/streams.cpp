#include "streams.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "capture.h"
#include "devices.h"

namespace pretended {
namespace {

using namespace std::chrono_literals;
constexpr auto kLastWork = 500ms;  // that streams get when the process ends: then a peer is missing
constexpr auto kLastItem = 100ms;

std::atomic<bool> used{false}, forked{false}, over{false};

template <class Done>
void wait_at_most(std::chrono::milliseconds limit, const Done& done) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!done() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(200us);
}

// Runs before the destructors of what was loaded earlier, libtorch's among them: no thread may work on beside
// those.
void end_streams() {
  if (forked || over) return;
  demand_all();
  wait_at_most(kLastWork, all_idle);
  if (all_idle()) return;
  over = true;
  wake_marks();
  wake_streams();
  wait_at_most(kLastItem, none_running);
}

}  // namespace

void begin_use() {
  if (used.load(std::memory_order_acquire) || forked) return;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (used) return;
  ::pthread_atfork(nullptr, nullptr, [] { forked = true; });
  used = true;
}

void stop_at_exit() {
  std::atexit(end_streams);
}

bool in_use() {
  return used;
}

bool ended() {
  return over;
}

cudaError_t life_error() {
  if (forked) return cudaErrorInitializationError;
  return over ? cudaErrorCudartUnloading : cudaSuccess;
}

namespace {

// Signals are for the threads of the program.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_;
};

std::chrono::milliseconds lateness() {
  return lab::strict() ? 50ms : 0ms;
}

[[noreturn]] void stand_still(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  for (;;) ::pause();
}

}  // namespace

unsigned long long next_id() {
  static std::atomic<unsigned long long> next{1};
  return next++;
}

Stream::Stream(int of_device, unsigned with_flags, int with_priority, bool is_default)
    : device(of_device), priority(with_priority), flags(with_flags), legacy(is_default), id(next_id()) {}

unsigned long long Stream::put(Node node) {
  const std::lock_guard lock(mutex_);
  queue_.push_back({std::move(node), std::chrono::steady_clock::now()});
  ++given_;
  if (!started_) start();
  changed_.notify_all();
  return given_;
}

void Stream::demand(unsigned long long length) {
  const std::lock_guard lock(mutex_);
  if (demanded_ >= length) return;
  demanded_ = length;
  changed_.notify_all();
}

void Stream::start() {
  const NoSignals in_the_thread;
  started_ = true;
  stop_at_exit();
  std::thread([self = shared_from_this()]() mutable {
    self->run();
    self.reset();
  }).detach();
}

// False when the thread has nothing to do any more. A thread whose process ends stands still.
bool Stream::wait_for_work(std::unique_lock<std::mutex>& lock) {
  for (;;) {
    if (ended()) stand_still(lock);
    if (queue_.empty() && closed_) return false;
    if (queue_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto begin = queue_.front().since + lateness();
    if (closed_ || demanded_ > done_ || std::chrono::steady_clock::now() >= begin) return true;
    changed_.wait_until(lock, begin);
  }
}

void Stream::run() {
  set_this_device(device);
  std::unique_lock lock(mutex_);
  runner_ = std::this_thread::get_id();
  while (wait_for_work(lock)) {
    Node node = std::move(queue_.front().node);
    queue_.pop_front();
    running_ = true;
    lock.unlock();
    perform(node);
    lock.lock();
    running_ = false;
    ++done_;
    changed_.notify_all();
  }
}

void Stream::perform(const Node& node) {
  try {
    node.work();
  } catch (const std::exception& error) {
    lab::say("%s on a stream of device %d threw: %s", node.what.c_str(), device, error.what());
    lab::fail_device(device, cudaErrorLaunchFailure);
  }
}

bool Stream::idle() {
  const std::lock_guard lock(mutex_);
  return done_ == given_;
}

bool Stream::running() {
  const std::lock_guard lock(mutex_);
  return running_;
}

unsigned long long Stream::length() {
  const std::lock_guard lock(mutex_);
  return given_;
}

void Stream::wait_until(unsigned long long length) {
  std::unique_lock lock(mutex_);
  if (runner_ == std::this_thread::get_id()) return;
  demanded_ = std::max(demanded_, length);
  changed_.notify_all();
  changed_.wait(lock, [&] { return done_ >= length || ended(); });
}

void Stream::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void Stream::wake() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

}  // namespace pretended

// All streams of the process. Nothing of it is ever destroyed.

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
    stream->put({[other, length = other->length()] { other->wait_until(length); }, "wait"});
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

using namespace pretended;

namespace lab {

cudaError_t enqueue(cudaStream_t handle, Work work, const char* what) {
  const auto stream = find_stream(handle);
  if (!stream) return give(cudaErrorInvalidResourceHandle);
  if (const auto error = state_of(stream->device)) return give(error);
  activate(stream->device);
  Node node{std::move(work), what};
  {
    const std::lock_guard lock(capture_lock());
    if (stream->capture) return give(stream->capture->take(stream, std::move(node)));
  }
  submit(stream, std::move(node));
  return cudaSuccess;
}

cudaError_t drain(cudaStream_t handle) {
  const auto stream = find_stream(handle);
  if (!stream) return give(cudaErrorInvalidResourceHandle);
  if (const auto error = state_of(stream->device)) return give(error);
  stream->drain();
  return give(state_of(stream->device));
}

}  // namespace lab

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  if (const auto error = enter()) return give(error);
  *stream = make_stream(this_device(), flags, priority);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

// What it has is still done.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return give(destroy_stream(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  const auto stream = find_stream(handle);
  if (!stream) return give(cudaErrorInvalidResourceHandle);
  if (const auto error = refuse_captured(stream)) return give(error);
  if (const auto error = unsafe("cudaStreamSynchronize")) return give(error);
  return lab::drain(handle);
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const auto stream = find_stream(handle);
  if (!stream) return give(cudaErrorInvalidResourceHandle);
  if (const auto error = refuse_captured(stream)) return give(error);
  if (const auto error = state_of(stream->device)) return give(error);
  return stream->idle() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize() {
  if (const auto error = unsafe("cudaDeviceSynchronize")) return give(error);
  if (const auto error = enter()) return give(error);
  drain_device(this_device());
  return give(state_of(this_device()));
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned) {
  return lab::enqueue(
      stream, [=] { callback(stream, cudaSuccess, data); }, "callback");
}

}  // extern "C"
