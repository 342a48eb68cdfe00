// The process's switches of libtorch's: what a config says is what libtorch then does.
#include "trainer/setup/setup.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace lockstep::train {
namespace {

TEST(Arithmetic, IsLeftAloneUnlessTheConfigSaysOtherwise) {
  at::globalContext().setBenchmarkCuDNN(true);
  choose_arithmetic(TrainSettings{});
  EXPECT_TRUE(at::globalContext().benchmarkCuDNN()) << "the program's own choice";
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
  at::globalContext().setBenchmarkCuDNN(false);
}

TEST(Arithmetic, OfTf32IsAllOrNone) {
  for (const bool all : {true, false, true}) {
    TrainSettings train;
    train.tf32 = all ? Tf32::all : Tf32::none;
    choose_arithmetic(train);
    EXPECT_EQ(at::globalContext().allowTF32CuDNN(), all);
    EXPECT_EQ(at::globalContext().allowTF32CuBLAS(), all);
  }
  at::globalContext().setAllowTF32CuDNN(true);
  at::globalContext().setAllowTF32CuBLAS(false);
}

TEST(Arithmetic, OfTheSameBitsTellsCublas) {
  ::unsetenv("CUBLAS_WORKSPACE_CONFIG");
  TrainSettings train;
  train.cudnn_benchmark = train.deterministic = true;
  choose_arithmetic(train);
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  EXPECT_TRUE(at::globalContext().benchmarkCuDNN());
  EXPECT_STREQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), ":4096:8");
  at::globalContext().setDeterministicAlgorithms(false, false);
  at::globalContext().setBenchmarkCuDNN(false);
}

}  // namespace
}  // namespace lockstep::train
