#include "lockstep/comm/watch/watched_work.h"

namespace lockstep::comm {
namespace {

// gloo's exceptions are not c10's, and their types are not in the wheel's headers: the text is what there is
std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an unknown error";
  }
}

constexpr std::chrono::milliseconds kMoment{250};

bool speaks_of_time(const std::string& text) {
  return text.find("imed out") != std::string::npos || text.find("imeout") != std::string::npos;
}

}  // namespace

// Another rank that came to this collective a moment earlier has lost its patience and cut the lines.
bool Watch::nearly_late() const {
  return left_.load() <= std::min<std::chrono::nanoseconds>(kMoment, limit() / 5);
}

std::exception_ptr Watch::judge(const std::exception_ptr& error) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (!judged_) {
    const std::string text = message_of(error);
    judged_ = roll_->judge(collective_, text, nearly_late() || speaks_of_time(text));
  }
  return judged_;
}

void Watch::judge_late() {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (!judged_) judged_ = roll_->judge(collective_, "", true);
}

WatchedWork::WatchedWork(c10::intrusive_ptr<c10d::Work> work, std::shared_ptr<Watch> watch,
                         const std::shared_ptr<Limits>& limits, int rank, c10d::OpType type)
    : Work(rank, type), work_(std::move(work)), watch_(std::move(watch)), limits_(limits) {}

std::exception_ptr WatchedWork::exception() const {
  const std::exception_ptr error = work_->exception();
  return error ? watch_->judge(error) : nullptr;
}

bool WatchedWork::wait_for_message() {
  const auto limits = limits_.lock();
  if (!limits) return work_->wait(watch_->limit());  // the group is gone
  limits->add(watch_);
  const std::shared_ptr<void> at_end(nullptr, [this](void*) { watch_->be_over(); });
  return work_->wait(kNever);
}

bool WatchedWork::wait(std::chrono::milliseconds timeout) {
  try {
    if (timeout == kNoTimeout && watch_->is_message()) return wait_for_message();
    return work_->wait(timeout);
  } catch (const std::exception&) {
    // the caller's own patience may end before the collective's: then the group lives on
    if (timeout != kNoTimeout && !work_->isCompleted()) throw;
    std::rethrow_exception(watch_->judge(std::current_exception()));
  }
}

c10::intrusive_ptr<c10::ivalue::Future> WatchedWork::getFuture() {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (future_) return future_;
  auto inner = work_->getFuture();
  const auto translate = [watch = watch_](c10::ivalue::Future& done) -> c10::IValue {
    if (done.hasError()) std::rethrow_exception(watch->judge(done.exception_ptr()));
    return done.value();
  };
  future_ = inner->then(translate, inner->elementType());
  return future_;
}

}  // namespace lockstep::comm
