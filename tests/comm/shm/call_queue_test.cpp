#include "lockstep/comm/shm/call_queue.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <future>

namespace lockstep::comm {
namespace {

c10::intrusive_ptr<QueuedWork> new_work() {
  return c10::make_intrusive<QueuedWork>(0, c10d::OpType::ALLREDUCE, 1, std::vector<at::Tensor>{});
}

struct Owner : c10::intrusive_ptr_target {};

TEST(CallQueue, AnAbandonedCallHoldsNobodyUp) {
  const auto owner = c10::make_intrusive<Owner>();
  const auto at_work = new_work(), waits = new_work(), late = new_work();
  std::promise<void> begun, stuck;
  auto returns = stuck.get_future().share();
  {
    CallQueue queue;
    queue.add(at_work, [&begun, returns] {
      begun.set_value();
      returns.wait();
      return std::exception_ptr();
    });
    queue.add(waits, [] { return std::exception_ptr(); });
    begun.get_future().wait();
    queue.abandon(*owner, std::make_exception_ptr(std::runtime_error("given up")));
    queue.add(late, [] { return std::exception_ptr(); });
  }  // its thread goes on
  for (const auto& work : {at_work, waits, late}) EXPECT_THROW(work->wait(), std::runtime_error);
  EXPECT_EQ(owner.use_count(), 2U);
  stuck.set_value();
}

TEST(CallQueue, AnErrorThatACallThrowsIsThatOfItsWork) {
  CallQueue queue;
  const auto work = new_work();
  queue.add(work, []() -> std::exception_ptr { throw std::runtime_error("thrown"); });
  EXPECT_THROW(work->wait(), std::runtime_error);
}

}  // namespace
}  // namespace lockstep::comm
