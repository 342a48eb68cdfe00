// What show() prints by hand, and what it tells a checker.
#include "lockstep/lesson/show.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>

namespace lockstep {
namespace {

// what a process of its own writes there: who listens is found out once in a process
std::string written_to(int descriptor, const std::function<void()>& body) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], descriptor);
    body();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  std::array<char, 4096> part;
  for (ssize_t count = 0; (count = ::read(ends[0], part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<size_t>(count));
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return text;
}

std::string printed(const std::function<void()>& body) {
  return written_to(STDOUT_FILENO, [&] {
    ::unsetenv("LOCKSTEP_FACTS_FD");
    ::setenv("RANK", "1", 1);
    body();
  });
}

std::string told(const std::function<void()>& body) {
  constexpr int kFacts = 9;
  return written_to(kFacts, [&] {
    ::setenv("LOCKSTEP_FACTS_FD", "9", 1);
    body();
  });
}

TEST(Show, PrintsTheRankAndAsFewDigitsAsBringTheNumberBack) {
  EXPECT_EQ(printed([] { show("third", 1.0 / 3); }), "rank 1: third = 0.3333333333333333\n");
  EXPECT_EQ(printed([] { show("none", std::nan("")); }), "rank 1: none = nan\n");
  EXPECT_EQ(printed([] { show("indices", std::vector<int64_t>{0, 2, 4}); }), "rank 1: indices = 0 2 4\n");
  EXPECT_EQ(printed([] { show("matrix", at::ones({2, 2}).t()); }), "rank 1: matrix = 1 1 1 1\n");
  EXPECT_EQ(printed([] { show("word", std::string("yes")); }), "rank 1: word = yes\n");
  EXPECT_EQ(printed([] {
              ::unsetenv("RANK");
              show("mean", 1.0);
            }),
            "rank 0: mean = 1\n");
}

TEST(Show, TellsACheckALineOfJson) {
  EXPECT_EQ(told([] { show("mean", 1.5); }), "{\"name\":\"mean\",\"numbers\":[1.5]}\n");
  EXPECT_EQ(told([] { show("say", std::string("a\"b\n")); }), "{\"name\":\"say\",\"text\":\"a\\\"b\\n\"}\n");
  EXPECT_EQ(told([] {
              show("row", std::vector<double>{std::nan(""), INFINITY, -INFINITY});
            }),
            "{\"name\":\"row\",\"numbers\":[\"nan\",\"inf\",\"-inf\"]}\n");
}

}  // namespace
}  // namespace lockstep
