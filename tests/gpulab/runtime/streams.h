#pragma once
// Streams, the marks that they wait for, and their life: from a GPU's first use to the process's end.

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "../lab.h"

namespace pretended {

/// The process uses the GPUs from now on: a child that it forks later may not.
void begin_use();
bool in_use();
/// A stream's thread begins: when the process ends, it gets a moment for its work, and stops.
void stop_at_exit();
/// cudaErrorInitializationError in a child of a process that had used a GPU; cudaErrorCudartUnloading when
/// the process ends and its streams have been given up.
cudaError_t life_error();
/// Streams do not begin anything any more, and nobody waits for them.
bool ended();

// A mark is one record of an event: a point in a stream's work that others wait for.

struct Capture;
class Stream;

struct Mark {
  bool done = false;  // with `at` under events.cpp's lock
  std::chrono::steady_clock::time_point at;
  int device = 0;
  std::weak_ptr<Stream> stream;  // that finishes it, when it has done so much
  unsigned long long position = 0;
  std::shared_ptr<Capture> capture;  // it was recorded in
  std::map<unsigned long long, size_t>
      seen;  // of each stream in the capture: how many nodes come before the mark
};
using MarkPtr = std::shared_ptr<Mark>;

void finish(const MarkPtr& mark);
bool is_done(const MarkPtr& mark);
/// Returns early when the process ends.
void wait_for(const MarkPtr& mark);
void wake_marks();

// A stream is a queue of work, and a thread that does it in order. In strict mode it begins with a piece of
// work when somebody waits for it, or 50 ms after it was put in: who forgets to wait meets what was
// there before, every time. The thread begins with the first work, and ends when the stream has been
// destroyed and nothing is left in it.

struct Node {
  lab::Work work;
  std::string what;
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(int of_device, unsigned with_flags, int with_priority, bool is_default);

  const int device, priority;
  const unsigned flags;
  const bool legacy;  // a device's default stream
  const unsigned long long id;
  std::shared_ptr<Capture> capture;  // under capture_lock()

  /// Behind what is there. Gives the length that the stream has then.
  unsigned long long put(Node node);
  bool idle();
  bool running();
  /// Somebody waits for so much of it.
  void demand(unsigned long long length);
  /// How much has been put in.
  unsigned long long length();
  /// Until so much is done. Nothing in the stream's own thread, and when the process ends.
  void wait_until(unsigned long long length);
  void drain() { wait_until(length()); }
  void close();
  void wake();

 private:
  struct Item {
    Node node;
    std::chrono::steady_clock::time_point since;
  };

  void start();
  void run();
  bool wait_for_work(std::unique_lock<std::mutex>& lock);
  void perform(const Node& node);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  unsigned long long given_ = 0, done_ = 0, demanded_ = 0;
  bool started_ = false, closed_ = false, running_ = false;
  std::thread::id runner_;
};
using StreamPtr = std::shared_ptr<Stream>;

unsigned long long next_id();

cudaStream_t make_stream(int device, unsigned flags, int priority);
/// The default stream of this thread's device for nullptr; nothing for what is no stream.
StreamPtr find_stream(cudaStream_t handle);
bool destroy_stream(cudaStream_t handle);

/// Puts work in, behind what CUDA orders it after: the default stream and those made without
/// cudaStreamNonBlocking wait for each other. Gives the length that the stream has then.
unsigned long long submit(const StreamPtr& stream, Node node);

/// All that the streams have is begun, late or not.
void demand_all();
/// Waits for all streams of a device that are not being captured; of each device with -1.
void drain_device(int device);
bool all_idle();
bool none_running();
void wake_streams();

// The objects behind CUDA's handles: a handle that is not, or no longer, one finds nothing.

template <class Object>
class Handles {
 public:
  template <class Handle>
  Handle add(std::shared_ptr<Object> object) {
    const std::lock_guard lock(mutex_);
    Object* address = object.get();
    objects_.emplace(address, std::move(object));
    return reinterpret_cast<Handle>(address);
  }
  std::shared_ptr<Object> find(const void* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }
  std::shared_ptr<Object> remove(const void* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(handle);
    if (found == objects_.end()) return nullptr;
    auto object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, std::shared_ptr<Object>> objects_;
};

}  // namespace pretended
