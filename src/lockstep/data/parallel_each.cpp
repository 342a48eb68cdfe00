#include "lockstep/data/parallel_each.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace lockstep::data {

void parallel_each(int64_t count, int threads, const std::function<std::function<void(int64_t)>()>& make) {
  constexpr int64_t kAtOnce = 16;
  std::atomic<int64_t> next = 0;
  std::exception_ptr error;
  std::mutex mutex;
  const auto run = [&] {
    try {
      const auto work = make();
      for (int64_t first = next.fetch_add(kAtOnce); first < count; first = next.fetch_add(kAtOnce)) {
        for (int64_t i = first; i < std::min(first + kAtOnce, count); ++i) work(i);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      next = count;
    }
  };
  std::vector<std::thread> others;
  try {
    const auto wanted = std::min<int64_t>(threads, (count + kAtOnce - 1) / kAtOnce);
    for (int64_t i = 1; i < wanted; ++i) others.emplace_back(run);
  } catch (const std::system_error&) {
    // no more threads to be had: those that run will do
  }
  run();
  for (auto& other : others) other.join();
  if (error) std::rethrow_exception(error);
}

int thread_count(int least) {
  return std::max(least, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace lockstep::data
