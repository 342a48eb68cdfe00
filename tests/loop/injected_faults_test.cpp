#include <gtest/gtest.h>

#include "trainer/config/keys.h"
#include "trainer/provoke/provoke.h"

namespace lockstep::train {
namespace {

TEST(InjectedFaults, AreTheChoicesOfTheKey) {
  auto names = Provocation::names();
  names.insert(names.begin(), "none");
  EXPECT_EQ(config::find_key("train.provoke")->rules.choices, names);
}

}  // namespace
}  // namespace lockstep::train
