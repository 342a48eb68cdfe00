#pragma once
// A timeout for a call that cannot be interrupted, such as a name lookup.

#include <chrono>
#include <future>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

namespace lockstep::base {

/// What `work` returns or throws; nullopt if it takes longer. Its thread then continues, so `work` must own
/// what it uses.
template <class Work>
std::optional<std::invoke_result_t<Work>> run_for(std::chrono::milliseconds timeout, Work work) {
  std::packaged_task<std::invoke_result_t<Work>()> task(std::move(work));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  if (result.wait_for(timeout) != std::future_status::ready) return std::nullopt;
  return result.get();
}

}  // namespace lockstep::base
