// The CUDA plug-in on a machine without a GPU: it loads, reports no device, and throws the program's errors.
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "lockstep/comm/cuda_plugin.h"
#include "lockstep/cuda/nccl_headers.h"
#include "refusal.h"

namespace lockstep::comm {
namespace {

// As the program loads it, on a node that may have GPUs.
void* plugin() {
  static void* const library = [] {
    ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
    return ::dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
  }();
  return library;
}

class CudaHalf : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(plugin()) << ::dlerror();
    const auto get = reinterpret_cast<const CudaTable* (*)()>(::dlsym(plugin(), kCudaTableSymbol));
    ASSERT_TRUE(get);
    table_ = get();
  }
  const CudaTable* table_ = nullptr;
};

TEST_F(CudaHalf, IsOfThisProgramAndWhole) {
  EXPECT_EQ(table_->version, kCudaTableVersion);
  EXPECT_TRUE(table_->device_count && table_->device_name && table_->set_device && table_->synchronize &&
              table_->make_nccl && table_->make_step_graph);
}

TEST(NcclHeaders, OfAnotherMinorVersionOrSizeAreRefused) {
  using cuda::NcclHeaders;
  EXPECT_NO_THROW(cuda::require_same(NcclHeaders{23007, 160}, NcclHeaders{23002, 160}));
  EXPECT_THROW(cuda::require_same(NcclHeaders{23007, 160}, NcclHeaders{23007, 152}), Error);
  const auto error = test::error_from<Error>([] {
    cuda::require_same(NcclHeaders{22809, 152}, NcclHeaders{23007, 160});
  });
  EXPECT_STREQ(error.what(),
               "the CUDA plug-in was compiled with NCCL 2.28 headers, but libtorch with NCCL 2.30 headers");
  EXPECT_EQ(error.hint(), "build it with NCCL 2.30 headers: -DNCCL_ROOT=FOLDER");
}

// Its names must not meet those of the program that loads it, which has most of them too.
TEST_F(CudaHalf, ShowsNothingButItsTable) {
  for (const char* name : {"_ZN8lockstep4cuda9make_ncclERKNS_4comm11NcclRequestE",
                           "_ZN8lockstep4cuda15make_step_graphEi", "_ZN8lockstep8describeERKSt9exception"})
    EXPECT_EQ(::dlsym(plugin(), name), nullptr) << name;
}

TEST_F(CudaHalf, CountsNoDeviceAndTakesNone) {
  EXPECT_EQ(table_->device_count(), 0);
  EXPECT_THROW(table_->device_name(0), c10::Error);
  EXPECT_THROW(table_->set_device(0), c10::Error);
  EXPECT_THROW(table_->synchronize(0), c10::Error);
  EXPECT_THROW(table_->make_step_graph(0), c10::Error);
}

TEST_F(CudaHalf, ItsErrorsAreThisProgramsOwn) {
  NcclRequest request;
  request.rank = 3;
  request.world = 4;
  const auto make = [&] { table_->make_nccl(request); };
  EXPECT_EQ(test::refusal_of<Error>(make),
            "NCCL needs a GPU, and this process sees none / rank 3 / check nvidia-smi and "
            "CUDA_VISIBLE_DEVICES on this node, or set launch.device to cpu");
  EXPECT_THROW(test::refusal_of(make), Error) << "it is no InputError";
}

}  // namespace
}  // namespace lockstep::comm
