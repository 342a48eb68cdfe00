#include <gtest/gtest.h>

#include "trainer/config/keys.h"
#include "trainer/provoke/provoke.h"

namespace lockstep::train {
namespace {

TEST(InjectedFaults, AreTheChoicesOfTheKey) {
  std::vector<std::string> names = {"none"};
  for (const auto& fault : kInjectedFaults) names.push_back(fault.name);
  EXPECT_EQ(config::find_key("train.provoke")->rules.choices, names);
}

}  // namespace
}  // namespace lockstep::train
