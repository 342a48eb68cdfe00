// What ends a process that nobody catches an error in; each in a process of its own.
#include "lockstep/launch/process/uncaught.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <thread>

namespace lockstep::launch {
namespace {

using ::testing::ExitedWithCode;

void throw_in_a_thread(const std::string& what) {
  std::thread([&] { throw std::runtime_error(what); }).join();
}

TEST(UncaughtDeathTest, ItIsSaidToTheOthersAndHereAndIsNoAbort) {
  const auto die = [] {
    never_abort();
    const auto heard =
        before_the_end([](const std::string& what) { std::fprintf(stderr, "told: %s\n", what.c_str()); });
    {
      const auto gone =
          before_the_end([](const std::string&) { std::fprintf(stderr, "told who is gone\n"); });
    }
    throw_in_a_thread("enforce fail: op.preamble.length <= op.nbytes. 8 vs 4. x");
  };
  const std::string words =
      "the ranks' calls differ: a message of 8 bytes came where one of 4 was expected\n";
  EXPECT_EXIT(die(), ExitedWithCode(1),
              "^told: " + words + "error: " + words + "  where: .*\n  to do: run with ");
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
