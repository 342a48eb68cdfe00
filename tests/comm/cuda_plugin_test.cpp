#include "lockstep/comm/cuda_plugin.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/comm/cuda_load.h"

namespace lockstep::comm {
namespace {

// Each in a process of its own: a plug-in stays loaded, and libtorch remembers what it was asked.
void load_and_count() {
  try {
    std::fprintf(stderr, "devices: %d\n", cuda_device_count());
    std::exit(0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", describe(error).c_str());
    std::exit(3);
  }
}

void load_late() {
  at::detail::getCUDAHooks();  // as a manual_seed or a backward does
  load_and_count();
}

void load_missing() {
  ::setenv("LOCKSTEP_CUDA_PLUGIN", "/nowhere/liblockstep_cuda.so", 1);
  load_and_count();
}

// Where the plug-in is looked for: beside this binary's folder, in lib.
std::filesystem::path plugin() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../lib/liblockstep_cuda.so";
}

class CudaPlugin : public ::testing::Test {
 protected:
  void SetUp() override {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    if (!std::filesystem::exists(plugin())) GTEST_SKIP() << "no " << plugin() << ": built without CUDA";
  }
};

TEST_F(CudaPlugin, LoadsAndCountsDevices) {
  EXPECT_EXIT(load_and_count(), ::testing::ExitedWithCode(0), "devices: ");
}

TEST_F(CudaPlugin, TooLateIsAnError) {
  EXPECT_EXIT(load_late(), ::testing::ExitedWithCode(3), "too late");
}

TEST(CudaPluginAbsent, SaysWhereItLooked) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(load_missing(), ::testing::ExitedWithCode(3), "/nowhere/liblockstep_cuda.so");
}

}  // namespace
}  // namespace lockstep::comm
