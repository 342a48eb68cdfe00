#pragma once
// A stream is a queue of work, and a thread that does it in order. In strict mode it begins with a piece of
// work when somebody waits for it, or LAB_LATE_MS after it was put in: who forgets to wait meets what was
// there before, every time. The thread begins with the first work, and ends when the stream has been
// destroyed and nothing is left in it.

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../lab.h"

namespace pretended {

struct Capture;

struct Node {
  lab::Work work;
  std::string what;
  bool touches_memory = true;  // of a device; a wait does not
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
  void perform(Node node);

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

}  // namespace pretended
