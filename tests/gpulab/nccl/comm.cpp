#include "nccl/comm.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace lab::nccl {
namespace {

constexpr int kYields = 20;
constexpr std::chrono::milliseconds kNap{100};

std::string text_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? text : "";
}

// LAB_FAIL_RANK names the rank that fails; without it rank 0 does.
bool is_the_failing_rank() {
  std::string rank;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "RANK", "SLURM_PROCID"})
    if (rank.empty()) rank = text_of(name);
  return std::strtol(text_of("LAB_FAIL_RANK").c_str(), nullptr, 10) == std::strtol(rank.c_str(), nullptr, 10);
}

struct Asked {
  Fault fault = Fault::none;
  long at = 0;
};

Asked read_fault() {
  const std::string text = text_of("LAB_NCCL_FAULT");
  const auto colon = text.find(':');
  if (colon == std::string::npos || !is_the_failing_rank()) return {};
  const std::string name = text.substr(0, colon);
  const Fault fault = name == "hang"    ? Fault::hang
                      : name == "error" ? Fault::error
                      : name == "async" ? Fault::async
                                        : Fault::kill;
  return {fault, std::strtol(text.c_str() + colon + 1, nullptr, 10)};
}

std::mutex last_mutex;
char last[1024] = "";  // as in NCCL, one for all communicators

}  // namespace

long next_collective() {
  static std::atomic<long> count{0};
  return ++count;
}

bool strikes(Fault fault, long collective) {
  static const Asked asked = read_fault();
  return asked.fault == fault && asked.at == collective;
}

bool abort_hangs() {
  static const bool hangs = text_of("LAB_NCCL_ABORT") == "hang" && is_the_failing_rank();
  return hangs;
}

ncclResult_t refuse(ncclResult_t error, const std::string& text) {
  const std::lock_guard lock(last_mutex);
  std::snprintf(last, sizeof last, "%s", text.c_str());
  return error;
}

std::string formatted(const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

void Bell::ring() {
  rings_.fetch_add(1);
  if (sleepers_.load() > 0) ::syscall(SYS_futex, &rings_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Bell::sleep(std::uint32_t heard, std::chrono::milliseconds longest) {
  const timespec time{longest.count() / 1000, longest.count() % 1000 * 1'000'000};
  sleepers_.fetch_add(1);
  ::syscall(SYS_futex, &rings_, FUTEX_WAIT, heard, &time, nullptr, 0);
  sleepers_.fetch_sub(1);
}

std::uint64_t Turns::take() {
  const std::lock_guard lock(mutex_);
  return taken_++;
}

void Turns::give_back(std::uint64_t turn) {
  const std::lock_guard lock(mutex_);
  back_.insert(turn);
  while (back_.erase(next_)) ++next_;
  changed_.notify_all();
}

bool Turns::begin(std::uint64_t turn) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || (next_ == turn && !runs_); });
  if (!stopped_) runs_ = true;
  return !stopped_;
}

bool Turns::begin_between() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || !runs_; });
  if (!stopped_) runs_ = true;
  return !stopped_;
}

void Turns::end() {
  const std::lock_guard lock(mutex_);
  runs_ = false;
  changed_.notify_all();
}

void Turns::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

void Turns::wait_quiet() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !runs_; });
}

void Turns::wait_empty() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !runs_ && (stopped_ || next_ == taken_); });
}

void Comm::wait(Bell& bell, const std::function<bool()>& ready) {
  for (int tries = 0;; ++tries) {
    const auto heard = bell.heard();
    if (ready()) return;
    if (aborted_) throw Aborted{};
    if (tries < kYields) {
      ::sched_yield();
    } else {
      bell.sleep(heard, kNap);
    }
  }
}

void Comm::wait_for_abort() {
  wait(own().bell, [] { return false; });
  throw Aborted{};
}

void Comm::barrier() {
  const auto all = ++barriers_ * static_cast<std::uint64_t>(size);
  if (board->arrivals.fetch_add(1) + 1 == all) return board->bell.ring();
  wait(board->bell, [&] { return board->arrivals >= all; });
}

void Comm::abort() {
  aborted_ = true;
  turns.stop();
  board->bell.ring();
  own().bell.ring();
}

void Comm::fail(ncclResult_t error, const std::string& text) {
  int none = ncclSuccess;
  if (error_.compare_exchange_strong(none, error)) refuse(error, text);
}

}  // namespace lab::nccl

NCCL_CALL const char* ncclGetLastError(ncclComm_t) {
  thread_local char copy[1024];
  const std::lock_guard lock(lab::nccl::last_mutex);
  std::memcpy(copy, lab::nccl::last, sizeof copy);
  return copy;
}

NCCL_CALL const char* ncclGetErrorString(ncclResult_t error) {
  switch (error) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "unknown result code";
  }
}
