#include "lifetime.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "marks.h"
#include "streams.h"

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

}  // namespace pretended
