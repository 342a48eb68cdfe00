#include "lockstep/comm/shm/call_queue.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::comm {

QueuedWork::QueuedWork(int rank, c10d::OpType type, uint64_t number, std::vector<at::Tensor> results)
    : Work(rank, type),
      number_(number),
      results_(std::move(results)),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

void QueuedWork::end(const std::exception_ptr& error) {
  if (ended_.test_and_set()) return;
  finish(error);
  error ? future_->setError(error) : future_->markCompleted(c10::IValue(results_));
}

struct CallQueue::State {
  struct Entry {
    c10::intrusive_ptr<QueuedWork> work;
    Call call;
    at::ThreadLocalState caller;
  };

  // `lock` is locked before and after the call, but not while it runs.
  void run_one(std::unique_lock<std::mutex>& lock) {
    auto entry = std::move(waiting.front());
    waiting.pop_front();
    current = entry.work;
    lock.unlock();
    const auto begin = std::chrono::steady_clock::now();
    std::exception_ptr error;
    {
      const at::ThreadLocalStateGuard as_caller(entry.caller);
      try {
        error = entry.call();
      } catch (...) {
        error = std::current_exception();
      }
    }
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    lock.lock();
    busy += passed.count();
    current = nullptr;
    lock.unlock();
    entry.work->end(error);
    lock.lock();
    done.push_back(std::move(entry));
  }

  void serve() {
    served_by = std::this_thread::get_id();
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return end || !waiting.empty(); });
      if (waiting.empty()) break;
      run_one(lock);
    }
    left = true;
    changed.notify_all();
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Entry> waiting;
  c10::intrusive_ptr<QueuedWork> current;
  // A caller frees their tensors: a thread of C++ cannot free Python's while Python exits.
  std::deque<Entry> done;
  std::exception_ptr abandoned;
  bool end = false, left = false;  // to leave, and the thread has left
  double busy = 0;
  std::thread thread;
  std::atomic<std::thread::id> served_by{};
};

CallQueue::CallQueue() : state_(std::make_shared<State>()) {}

CallQueue::~CallQueue() {
  const bool here = runs_here();
  std::deque<State::Entry> left;
  {
    const std::lock_guard<std::mutex> guard(state_->mutex);
    state_->end = true;
    if (here) left.swap(state_->waiting);
  }
  state_->changed.notify_all();
  const auto gone = std::make_exception_ptr(Error("the process group has ended before this collective"));
  for (const auto& entry : left) entry.work->end(gone);
  if (!state_->thread.joinable()) return;
  std::unique_lock<std::mutex> lock(state_->mutex);
  if (!here) state_->changed.wait(lock, [this] { return state_->left || state_->abandoned; });
  const bool comes_back = state_->left;
  lock.unlock();
  comes_back ? state_->thread.join() : state_->thread.detach();
}

void CallQueue::add(c10::intrusive_ptr<QueuedWork> work, Call call) {
  newest();  // frees those that are done
  std::exception_ptr gone;
  {
    const std::lock_guard<std::mutex> guard(state_->mutex);
    gone = state_->abandoned;
    if (!gone) {
      if (!state_->thread.joinable()) state_->thread = std::thread([state = state_] { state->serve(); });
      state_->waiting.push_back({work, std::move(call), at::ThreadLocalState()});
    }
  }
  if (gone) return work->end(gone);
  state_->changed.notify_all();
  if (runs_here()) run_waiting();  // called by a callback: no other thread would run it
}

void CallQueue::abandon(c10::intrusive_ptr_target& owner, const std::exception_ptr& error) {
  c10::raw::intrusive_ptr::incref(&owner);
  std::deque<State::Entry> left;
  c10::intrusive_ptr<QueuedWork> current;
  {
    const std::lock_guard<std::mutex> guard(state_->mutex);
    state_->abandoned = error;
    left.swap(state_->waiting);
    current = state_->current;
  }
  state_->changed.notify_all();
  if (current) current->end(error);
  for (const auto& entry : left) entry.work->end(error);
}

c10::intrusive_ptr<QueuedWork> CallQueue::newest() const {
  decltype(state_->done) done;  // freed without the lock
  const std::lock_guard<std::mutex> guard(state_->mutex);
  done.swap(state_->done);
  return state_->waiting.empty() ? state_->current : state_->waiting.back().work;
}

bool CallQueue::runs_here() const {
  return state_->served_by.load(std::memory_order_relaxed) == std::this_thread::get_id();
}

void CallQueue::run_waiting() {
  std::unique_lock<std::mutex> lock(state_->mutex);
  while (!state_->waiting.empty()) state_->run_one(lock);
}

double CallQueue::busy() const {
  const std::lock_guard<std::mutex> guard(state_->mutex);
  return state_->busy;
}

}  // namespace lockstep::comm
