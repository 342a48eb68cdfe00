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
#include "lockstep/launch/doctor_hint.h"
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

// gloo finds in a thread of its own that what came is no answer to what was asked, and throws there.
std::string in_words(const std::string& text) {
  constexpr const char* kMismatch = "op.preamble.length <= op.nbytes. ";
  const auto place = text.find(kMismatch);
  if (place == std::string::npos) return text;
  const auto numbers = text.substr(place + std::char_traits<char>::length(kMismatch));
  const auto expected = numbers.find(" vs ");
  if (expected == std::string::npos) return text;
  const auto asked = numbers.substr(expected + 4);
  return "the ranks' calls differ: a message of " + numbers.substr(0, expected) +
         " bytes came where one of " + asked.substr(0, asked.find('.')) +
         " was expected\n  where: the process group, gloo\n  to do: run with "
         "TORCH_DISTRIBUTED_DEBUG=DETAIL, which names every rank's call; look for a branch that not every "
         "rank takes";
}

// For what no catch sees: an error in a thread, or inside of another one's clean-up.
[[noreturn]] void end_in_words() {
  const auto thrown = std::current_exception();
  if (!thrown) std::abort();
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    log::error(in_words(describe(error)) + (tracing() ? "\n" + last_trace() : ""));
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
    text = launch::with_doctor(describe(error));
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
