// What ends a process that nobody catches an error in; each in a process of its own.
#include "lockstep/launch/process/leave.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

using ::testing::ExitedWithCode;

void throw_in_a_thread(const std::string& what) {
  std::thread([&] { throw std::runtime_error(what); }).join();
}

TEST(UncaughtDeathTest, ItIsSaidToTheOthersAndHereAndIsNoAbort) {
  const auto die = [] {
    never_abort();
    const auto heard = before_the_end(
        [](const std::string& what) { return std::fprintf(stderr, "told: %s\n", what.c_str()), nullptr; });
    {
      const auto gone = before_the_end(
          [](const std::string&) { return std::fprintf(stderr, "told who is gone\n"), nullptr; });
    }
    throw_in_a_thread("enforce fail: op.preamble.length <= op.nbytes. 8 vs 4. x");
  };
  const std::string words = "the ranks' calls differ: a message of 8 bytes arrived instead of one of 4\n";
  EXPECT_EXIT(die(), ExitedWithCode(1),
              "^told: " + words + "error: " + words + "  --> .*\n  hint: run with ");
}

TEST(UncaughtDeathTest, AListenersErrorIsSaidInItsPlace) {
  const auto die = [] {
    never_abort();
    const auto knows = before_the_end([](const std::string& what) {
      return std::make_exception_ptr(
          Error("rank 1 has died", "where it was seen", "look there; not: " + what));
    });
    throw_in_a_thread("Process group watchdog thread terminated");
  };
  EXPECT_EXIT(die(), ExitedWithCode(1),
              "^error: rank 1 has died\n  --> where it was seen\n  hint: look there; not: Process group");
}

TEST(UncaughtDeathTest, TheProgramsOwnHandlerStays) {
  const auto die = [] {
    std::set_terminate([] { std::_Exit(7); });
    never_abort();
    throw_in_a_thread("lost");
  };
  EXPECT_EXIT(die(), ExitedWithCode(7), "");
}

}  // namespace
}  // namespace lockstep::launch
