#include "lockstep/launch/process/uncaught.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/launch/process/leave.h"
#include "lockstep/launch/process/report.h"

namespace lockstep::launch {
namespace {

using Tell = std::function<std::exception_ptr(const std::string&)>;

const std::terminate_handler kAtStart = std::get_terminate();
std::string (*more_words)() = nullptr;
constexpr std::chrono::seconds kLeaves{10};

// Given back when memory ends, so that there is some to say so with.
std::atomic<char*> reserve = nullptr;

void out_of_memory() {
  delete[] reserve.exchange(nullptr);
  throw std::bad_alloc();
}

struct Listeners {
  std::mutex mutex;
  std::vector<std::weak_ptr<Tell>> all;
};

Listeners& listeners() {
  static auto* const kept = new Listeners;  // threads may still throw while statics go
  return *kept;
}

std::exception_ptr tell_listeners(const std::string& what) {
  const std::lock_guard<std::mutex> guard(listeners().mutex);
  std::exception_ptr better;
  for (const auto& listener : listeners().all) {
    const auto tell = listener.lock();
    if (auto error = tell ? (*tell)(what) : nullptr; error && !better) better = std::move(error);
  }
  return better;
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

// Where another thread has met an error first, it is that one's to say.
void let_another_speak() {
  if (another_thread_leaves()) std::this_thread::sleep_for(kLeaves);
}

[[noreturn]] void end_with(const std::string& text, const std::exception* error = nullptr) {
  let_another_speak();
  try {
    const auto better = tell_listeners(text.substr(0, text.find('\n')));
    let_another_speak();  // to judge takes a moment
    if (better) std::rethrow_exception(better);
  } catch (const Error& better) {
    log::error(describe(better) + (more_words ? more_words() : ""));
    note_fault(better);
    ::_exit(kFailed);
  } catch (const std::exception&) {  // the others see this process end
  }
  log::error(text);
  if (error) note_fault(*error);
  ::_exit(kFailed);
}

// For what no catch sees: an error in a thread, or inside of another one's clean-up.
[[noreturn]] void end_in_words() {
  const auto thrown = std::current_exception();
  if (!thrown) std::abort();
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    end_with(in_words(describe(error)) + (more_words ? more_words() : ""), &error);
  } catch (...) {
    end_with("something was thrown that is no std::exception");
  }
}

}  // namespace

void never_abort(std::string (*more)()) {
  constexpr size_t kReserve = 256 << 10;
  if (!std::get_new_handler()) {
    reserve = new char[kReserve];
    std::set_new_handler(out_of_memory);
  }
  if (std::get_terminate() != kAtStart) return;
  more_words = more;
  std::set_terminate(end_in_words);
}

std::shared_ptr<void> before_the_end(Tell tell) {
  auto listener = std::make_shared<Tell>(std::move(tell));
  const std::lock_guard<std::mutex> guard(listeners().mutex);
  std::erase_if(listeners().all, [](const auto& each) { return each.expired(); });
  listeners().all.push_back(listener);
  // who lets go of it while it is told waits, and the process ends there
  return {listener.get(), [listener](void*) mutable {
            const std::lock_guard<std::mutex> guard(listeners().mutex);
            listener.reset();
          }};
}

}  // namespace lockstep::launch
