#pragma once
// A bound on a call that cannot be interrupted and that asks another machine.

#include <chrono>
#include <future>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

namespace lockstep::base {

/// What `work` returns or throws; nothing where it takes longer. Then its thread goes on alone, so `work`
/// must own what it uses.
template <class Work>
std::optional<std::invoke_result_t<Work>> run_for(std::chrono::milliseconds timeout, Work work) {
  std::packaged_task<std::invoke_result_t<Work>()> task(std::move(work));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  if (result.wait_for(timeout) != std::future_status::ready) return std::nullopt;
  return result.get();
}

}  // namespace lockstep::base
