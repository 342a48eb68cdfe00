#include "lockstep/comm/watch/watched_work.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <thread>

namespace lockstep::comm {

namespace {

// gloo's exceptions are not c10's, and the wheel has no headers for them: only the text is available
std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an unknown error";
  }
}

using std::chrono::milliseconds;

constexpr milliseconds kMoment{250};
constexpr milliseconds kGivenUpLook{1000};  // between two checks whether the call was given up
constexpr milliseconds kLook{50};
constexpr int kLooksPerProcessLook = 5;  // by then gloo has usually noticed a death itself
constexpr milliseconds kDrainPoll{2};
constexpr int kLooksOfGrace = 20;  // in which gloo may end its calls after the cut

bool is_timeout_text(const std::string& text) {
  return text.find("imed out") != std::string::npos || text.find("imeout") != std::string::npos;
}

// gloo finds out in its own thread, on all ranks alike, that it cannot reduce such numbers in such a way.
bool is_refusal(const std::string& text) {
  constexpr std::array kTexts = {"Cannot use ReduceOp", "Invalid scalar type", "can't be cast to",
                                 "complex tensors"};
  return std::any_of(kTexts.begin(), kTexts.end(), [&](auto part) { return text.find(part) != text.npos; });
}

// c10d::Work::wait's own
bool is_end_of_wait(const c10::Error& error) {
  return std::string_view(error.what_without_backtrace()).find("Operation timed out!") !=
         std::string_view::npos;
}

// A future needs the GPUs of its tensors. CPU devices have no index.
std::vector<c10::Device> gpus_of(const std::vector<at::Tensor>& tensors) {
  std::vector<c10::Device> gpus;
  for (const auto& tensor : tensors) {
    if (tensor.device().has_index() && std::count(gpus.begin(), gpus.end(), tensor.device()) == 0)
      gpus.push_back(tensor.device());
  }
  std::sort(gpus.begin(), gpus.end(), [](auto a, auto b) { return a.index() < b.index(); });
  return gpus;
}

}  // namespace

// Another rank that began this collective slightly earlier has timed out and cut the connections.
bool CollectiveWatch::nearly_late() const {
  return limit() - waited() <= std::min(kMoment, limit() / 5);
}

std::exception_ptr CollectiveWatch::diagnose_as(const std::string& cause, bool timed_out) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (!error_) error_ = monitor_->diagnose(collective_, cause, timed_out);
  return error_;
}

std::exception_ptr CollectiveWatch::diagnose(const std::exception_ptr& error) {
  const std::string text = message_of(error);
  if (is_refusal(text)) return error;  // the group can continue
  return diagnose_as(text, nearly_late() || is_timeout_text(text));
}

void CollectiveWatch::mark_done() {
  decltype(waiting_) waiting;  // freed without the lock
  const std::lock_guard<std::mutex> guard(mutex_);
  over_ = true;
  waiting.swap(waiting_);
}

void CollectiveWatch::give_up() {
  const auto error = diagnose_lost();
  std::vector<std::function<void(const std::exception_ptr&)>> waiting;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (over_) return;  // it has ended meanwhile
    given_up_ = true;
    waiting.swap(waiting_);
  }
  for (const auto& tell : waiting) tell(error);
}

void CollectiveWatch::when_given_up(std::function<void(const std::exception_ptr&)> tell) {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!given_up_) return waiting_.push_back(std::move(tell));
  }
  tell(error_);
}

TimeoutThread::TimeoutThread(Connections connections, std::shared_ptr<const PeerMonitor> monitor)
    : connections_(std::move(connections)),
      monitor_(std::move(monitor)),
      timer_(std::make_unique<base::Timer>(kLook, [this] { return look(); })) {}

TimeoutThread::~TimeoutThread() {
  timer_.reset();
  give_up_all();
}

void TimeoutThread::add(const std::shared_ptr<CollectiveWatch>& watch) {
  const std::lock_guard<std::mutex> guard(mutex_);
  watch->start();
  pending_.push_back(watch);
}

void TimeoutThread::drain() {
  while (!cut_ && !pending().empty()) std::this_thread::sleep_for(kDrainPoll);
}

void TimeoutThread::cut_connections() {
  if (!cut_.exchange(true)) cut(connections_);
}

std::vector<std::shared_ptr<CollectiveWatch>> TimeoutThread::pending() {
  const std::lock_guard<std::mutex> guard(mutex_);
  std::erase_if(pending_, [](const auto& watch) { return watch->is_over(); });
  return pending_;
}

void TimeoutThread::give_up_all() {
  for (const auto& watch : pending()) watch->give_up();
}

// On a thread of its own: it may ask other nodes for seconds, and all timers share one thread.
bool TimeoutThread::diagnose(const std::shared_ptr<CollectiveWatch>& watch, bool late) {
  diagnosis_ = std::async(std::launch::async,
                          [watch, late] { late ? watch->diagnose_late() : watch->diagnose_lost(); });
  return true;
}

// Another rank of the node may know that the group is dead, but gloo here may not notice. gloo may also never
// end a send to a rank that was killed. After the cut, two of gloo's threads may still wait for each other:
// one writes to a dead peer and holds a lock that the other needs to see that the connection is closed.
bool TimeoutThread::look() {
  if (diagnosis_.valid() && diagnosis_.wait_for(milliseconds(0)) != std::future_status::ready) return true;
  const auto all = pending();
  const bool knows_death = monitor_->knows_death();
  checks_of_dead_group_ = !all.empty() && (cut_ || knows_death) ? checks_of_dead_group_ + 1 : 0;
  if (cut_) {
    if (checks_of_dead_group_ <= kLooksOfGrace) return true;
    give_up_all();
    return false;
  }
  const bool looks_at_processes = ++looks_ % kLooksPerProcessLook == 0;
  for (const auto& watch : all) {
    watch->look();
    const bool asks =
        watch->is_late() || (looks_at_processes && watch->waited() > kLooksPerProcessLook * kLook);
    // a rank that found out why the group is dead published that before it left
    if (asks && !knows_death && watch->waits_for_lost_rank()) return diagnose(watch, false);
    if (watch->is_late()) return diagnose(watch, true);
  }
  if (checks_of_dead_group_ > kLooksOfGrace) return diagnose(all.front(), false);
  return true;
}

// gloo may never end it, so this checks between two waits whether it was given up. Any other error is the
// work's own, even if the work is never completed: a reduce-scatter is an all-reduce of ours and a copy.
bool wait_unless_given_up(c10d::Work& work, CollectiveWatch& watch) {
  while (!work.isCompleted()) {
    if (watch.is_given_up()) std::rethrow_exception(watch.diagnose_lost());
    try {
      return work.wait(kGivenUpLook);
    } catch (const c10::Error& error) {
      if (!is_end_of_wait(error)) throw;
    }
  }
  return work.wait(kNever);
}

WatchedWork::WatchedWork(c10::intrusive_ptr<c10d::Work> work, std::shared_ptr<CollectiveWatch> watch,
                         const std::shared_ptr<TimeoutThread>& timeouts, int rank, c10d::OpType type)
    : Work(rank, type), work_(std::move(work)), watch_(std::move(watch)), timeouts_(timeouts) {}

std::exception_ptr WatchedWork::exception() const {
  if (watch_->is_given_up()) return watch_->diagnose_lost();
  const std::exception_ptr error = work_->exception();
  return error ? watch_->diagnose(error) : nullptr;
}

bool WatchedWork::wait_for_message() {
  const auto timeouts = timeouts_.lock();
  if (!timeouts) return work_->wait(watch_->limit());  // the group is gone
  timeouts->add(watch_);
  const std::shared_ptr<void> at_end(nullptr, [this](void*) { watch_->mark_done(); });
  return work_->wait(kNever);
}

bool WatchedWork::wait(std::chrono::milliseconds timeout) {
  try {
    if (timeout == kNoTimeout)
      return watch_->is_message() ? wait_for_message() : wait_unless_given_up(*work_, *watch_);
    return work_->wait(timeout);
  } catch (const std::exception&) {
    // the caller's own timeout may be shorter than the collective's: then the group stays alive
    if (timeout != kNoTimeout && !watch_->is_given_up() && !work_->exception()) throw;
    std::rethrow_exception(watch_->diagnose(std::current_exception()));
  }
}

c10::intrusive_ptr<c10::ivalue::Future> WatchedWork::getFuture() {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (future_) return future_;
  auto inner = work_->getFuture();
  future_ = c10::make_intrusive<c10::ivalue::Future>(inner->elementType());
  const auto first = std::make_shared<std::atomic_flag>();  // of the two below
  inner->addCallback([watch = watch_, future = future_, first](c10::ivalue::Future& done) {
    const auto error = done.hasError() ? watch->diagnose(done.exception_ptr()) : nullptr;
    if (first->test_and_set()) return;
    error ? future->setError(error) : future->markCompleted(done.value());
  });
  watch_->when_given_up([future = future_, first](const std::exception_ptr& error) {
    if (!first->test_and_set()) future->setError(error);
  });
  return future_;
}

FinishedWork::FinishedWork(int rank, c10d::OpType type, uint64_t number, std::vector<at::Tensor> tensors,
                           std::exception_ptr error)
    : Work(rank, type), number_(number), tensors_(std::move(tensors)) {
  finish(std::move(error));
}

bool FinishedWork::wait(std::chrono::milliseconds) {
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> FinishedWork::getFuture() {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                         gpus_of(tensors_));
  exception_ ? future->setError(exception_) : future->markCompleted(c10::IValue(tensors_));
  return future;
}

}  // namespace lockstep::comm
