#include "trainer/provoke/injected_faults.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "trainer/config/keys.h"
#include "trainer/provoke/container.h"

namespace lockstep::train {
namespace {

TEST(InjectedFaults, AreTheChoicesOfTheKey) {
  const auto* key = config::find_key("train.provoke");
  ASSERT_TRUE(key);
  std::vector<std::string> names{"none"};
  for (const auto& fault : injected_faults()) names.push_back(fault.name);
  EXPECT_EQ(key->rules.choices, names);
}

TEST(Container, SaysWhatIsLittle) {
  EXPECT_NE(say_shared_memory(64 << 20).find("64 MB, which is little"), std::string::npos);
  EXPECT_NE(say_shared_memory(64 << 20).find("--shm-size"), std::string::npos);
  EXPECT_NE(say_shared_memory(int64_t{2} << 30).find("enough"), std::string::npos);
  EXPECT_GT(shared_memory_bytes(), 0);
}

TEST(Container, WantsAGpu) {
  EXPECT_NO_THROW(require_container_for_nccl({.count = 1, .because = ""}, 0));
  EXPECT_THROW(require_container_for_nccl({.count = 0, .because = "none"}, 0), InputError);
}

}  // namespace
}  // namespace lockstep::train
