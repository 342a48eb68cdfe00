#include "lockstep/cli/failure.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <new>
#include <thread>

#include "lockstep/base/log.h"
#include "lockstep/cli/trace.h"
#include "lockstep/launch/identify.h"
#include "lockstep/launch/leave.h"
#include "lockstep/launch/voice.h"

namespace lockstep::cli {
namespace {

// Given back when memory ends, so that there is some to say so with.
std::atomic<char*> reserve = nullptr;

void out_of_memory() {
  delete[] reserve.exchange(nullptr);
  throw std::bad_alloc();
}

// For what no catch sees: an error in a thread, or inside of another one's clean-up.
[[noreturn]] void end_in_words() {
  const auto thrown = std::current_exception();
  if (!thrown) std::abort();
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    log::error(describe(error) + (tracing() ? "\n" + last_trace() : ""));
  } catch (...) {
    log::error("something was thrown that is no std::exception");
  }
  ::_exit(kFailed);
}

}  // namespace

void never_abort() {
  constexpr size_t kReserve = 256 << 10;
  reserve = new char[kReserve];
  std::set_new_handler(out_of_memory);
  std::set_terminate(end_in_words);
}

int guarded(const std::function<int(bool& alike)>& body) {
  // leave_failed() may end this process from inside, so nothing may be left to unwind when it is called
  ExitStatus status = kFailed;
  std::string text = "something was thrown that is no std::exception";
  bool alike = false;
  try {
    return body(alike);
  } catch (const std::exception& error) {
    status = exit_status(error);
    text = describe(error);
    if (tracing()) text += "\n" + last_trace();
    alike = (alike && status == kBadInput) || dynamic_cast<const UsageError*>(&error) != nullptr;
  } catch (...) {
  }
  if (!alike) return launch::leave_failed(status, text);
  if (launch::rank_by_environment(launch::current_environment()).rank == 0) {
    log::error(text);
  } else {
    std::this_thread::sleep_for(
        std::chrono::milliseconds(500));  // a launcher may end all when the first one leaves
  }
  return status;
}

}  // namespace lockstep::cli
