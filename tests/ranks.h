#pragma once
// What tests under mpirun share: the job's one Runtime, and failures of every rank with its number.

#include <gtest/gtest.h>

#include <cstdio>

#include "lockstep/launch/process/runtime.h"

namespace lockstep::test {

launch::Runtime& runtime();

class FailurePrinter : public ::testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "[rank %d] %s:%d: %s\n", rank_, result.file_name() ? result.file_name() : "?",
                 result.line_number(), result.summary());
  }

 private:
  int rank_;
};

}  // namespace lockstep::test
