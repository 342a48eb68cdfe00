#include "base/error.h"

#include <gtest/gtest.h>

namespace lockstep {

TEST(Error, DescribesWhatWhereAndWhatToDo) {
  EXPECT_EQ(describe(InputError("bad key", "a.yaml:3:1", "remove it")),
            "bad key\n  where: a.yaml:3:1\n  to do: remove it");
  EXPECT_EQ(describe(Error("plain")), "plain");
  EXPECT_EQ(InputError("x").exit_status(), kBadInput);
}

}  // namespace lockstep
