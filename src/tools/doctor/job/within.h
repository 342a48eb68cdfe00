#pragma once
// Work that may hang for ever in the kernel, waited for within a time.

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>

namespace lockstep::doctor {

/// What `work` returns or throws, in a thread of its own; nothing where it was not done in time, and that
/// thread is left behind with all that it holds.
template <class Result>
std::optional<Result> within(std::chrono::milliseconds patience, std::function<Result()> work) {
  auto answer = std::make_shared<std::promise<Result>>();
  auto future = answer->get_future();
  std::thread([answer, work = std::move(work)] {
    try {
      answer->set_value(work());
    } catch (...) {
      answer->set_exception(std::current_exception());
    }
  }).detach();
  if (future.wait_for(patience) != std::future_status::ready) return std::nullopt;
  return future.get();
}

}  // namespace lockstep::doctor
