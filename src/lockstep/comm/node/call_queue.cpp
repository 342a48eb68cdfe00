#include "lockstep/comm/node/call_queue.h"

#include <ATen/core/ivalue.h>

#include <chrono>
#include <utility>

namespace lockstep::comm {

QueuedWork::QueuedWork(int rank, c10d::OpType type, uint64_t number, std::vector<at::Tensor> results)
    : Work(rank, type),
      number_(number),
      results_(std::move(results)),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

void QueuedWork::end(const std::exception_ptr& error) {
  finish(error);
  error ? future_->setError(error) : future_->markCompleted(c10::IValue(results_));
}

CallQueue::~CallQueue() {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    end_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CallQueue::add(c10::intrusive_ptr<QueuedWork> work, Call call) {
  const std::lock_guard<std::mutex> guard(mutex_);
  waiting_.push_back({std::move(work), std::move(call)});
  if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  changed_.notify_all();
}

bool CallQueue::idle() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  return waiting_.empty() && !runs_;
}

double CallQueue::busy() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  return busy_;
}

void CallQueue::serve() {
  using Clock = std::chrono::steady_clock;
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return end_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    auto [work, call] = std::move(waiting_.front());
    waiting_.pop_front();
    runs_ = true;
    lock.unlock();
    const auto begin = Clock::now();
    const auto error = call();
    const std::chrono::duration<double> passed = Clock::now() - begin;
    lock.lock();
    busy_ += passed.count();
    runs_ = false;
    lock.unlock();
    call = nullptr;  // and what it holds, before somebody hears that all is over
    work->end(error);
    lock.lock();
  }
}

}  // namespace lockstep::comm
