// An error as JSON, and back.
#include "lockstep/base/json.h"

#include <gtest/gtest.h>

namespace lockstep {

TEST(FaultJson, ComesBackWhole) {
  const Fault fault{.code = Code::rank_late,
                    .ranks = {1, 3},
                    .what = "late",
                    .where = "rank 0",
                    .hint = "look",
                    .met_in = {.call = "all-reduce", .number = 9, .waited = 1.5},
                    .seen = {{.rank = 1, .call = "barrier", .number = 8, .state = "did not arrive"},
                             {.rank = 3, .call = "broadcast", .number = 7}}};
  const auto line = base::as_line(base::to_json(fault));
  const auto again = base::fault_in(line);
  ASSERT_TRUE(again);
  EXPECT_EQ(base::as_line(base::to_json(*again)), line);
  EXPECT_EQ(again->code, Code::rank_late);
  EXPECT_EQ(again->seen[0].state, "did not arrive");
  EXPECT_EQ(again->seen[1].number, 7u);
  EXPECT_EQ(again->met_in.waited, 1.5);
}

TEST(FaultJson, SaysNothingOfCollectivesWhereThereWereNone) {
  EXPECT_EQ(base::as_line(base::to_json(Fault{.what = "x"})),
            R"({"code":"failed","ranks":[],"what":"x","where":"","hint":""})");
}

TEST(FaultJson, RefusesSomethingElseAndLeavesOutAFieldOfAnotherType) {
  for (const char* text : {"", "x", "[]", "{}", R"({"code":7})", R"({"name":"mean","numbers":[1]})"})
    EXPECT_FALSE(base::fault_in(text)) << text;
  const auto odd = base::fault_in(R"({"code":"no such","what":7,"ranks":[1,"x"],"met_in":[],"seen":[7]})");
  ASSERT_TRUE(odd);
  EXPECT_EQ(odd->code, Code::failed);
  EXPECT_EQ(odd->what, "");
  EXPECT_TRUE(odd->ranks.empty());
  EXPECT_EQ(odd->met_in.call, "");
}

}  // namespace lockstep
