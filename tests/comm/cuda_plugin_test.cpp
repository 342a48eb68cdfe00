#include "lockstep/comm/cuda_plugin.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/comm/cuda_load.h"

#include "lockstep/base/error.h"
#include "lockstep/comm/meet/private_folder.h"

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
    if (!std::filesystem::exists(plugin()))
      GTEST_SKIP() << "no " << plugin() << ": built without the CUDA half";
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

// What a rank leaves on a full disk: the first bytes of a record.
TEST(SharedStore, AnIncompleteRecordIsAnErrorForEveryReader) {
  const base::Descriptor whole(::open("/tmp", O_TMPFILE | O_RDWR, 0600));
  shared_store(base::Descriptor(::dup(whole.number())))->set("key", std::string(100, 'x'));
  std::string bytes(200, '\0');
  bytes.resize(static_cast<size_t>(::pread(whole.number(), bytes.data(), bytes.size(), 0)));
  for (const size_t kept : {size_t{1}, size_t{60}, bytes.size() - 1}) {
    const base::Descriptor file(::open("/tmp", O_TMPFILE | O_RDWR, 0600));
    ASSERT_TRUE(base::write_all(file.number(), bytes.substr(0, kept)));
    EXPECT_THROW(shared_store(base::Descriptor(::dup(file.number())))->set("other", bytes), Error) << kept;
    EXPECT_THROW(shared_store(base::Descriptor(::dup(file.number())))->wait({"key"}, 60s), Error) << kept;
  }
}

}  // namespace
}  // namespace lockstep::comm
