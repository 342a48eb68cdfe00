// main for tests that run under mpirun: one Runtime for the whole binary, rank 0 alone prints the report.
#include <gtest/gtest.h>

#include <csignal>

#include "ranks.h"

namespace lockstep::test {
launch::Runtime& runtime() {
  static launch::Runtime instance;
  return instance;
}
}  // namespace lockstep::test

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  ::testing::InitGoogleTest(&argc, argv);
  auto& runtime = lockstep::test::runtime();
  if (runtime.job().rank != 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new lockstep::test::FailurePrinter(runtime.job().rank));
  }
  const int failed = RUN_ALL_TESTS();
  runtime.barrier();
  return failed;
}
