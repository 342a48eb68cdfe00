#include "lockstep/base/json.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::base {
namespace {

std::string nested(int depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

TEST(ParseJson, TakesWhatIsNestedAsDeeplyAsAllowedAndNothingDeeper) {
  EXPECT_TRUE(parse_json(nested(kDeepestJson)).is_array());
  EXPECT_TRUE(parse_json(nested(kDeepestJson + 1)).is_discarded());
  EXPECT_TRUE(parse_json(std::string(1 << 24, '[')).is_discarded());
  EXPECT_TRUE(parse_json("{").is_discarded());
}

TEST(ParseJson, BracketsInTextsAreNoNesting) {
  const std::string many(2 * kDeepestJson, '{');
  EXPECT_EQ(parse_json("\"" + many + "\""), many);
  EXPECT_EQ(parse_json(R"("\")" + many + "\"").get<std::string>(), "\"" + many);
}

TEST(ParseJson, SiblingsAreNotDeep) {
  std::string list = "[[]";
  for (int i = 0; i < 2 * kDeepestJson; ++i) list += ",[]";
  EXPECT_TRUE(parse_json(list + "]").is_array());
}

TEST(WhatIsWrong, IsSaidWithoutTheExceptionsName) {
  const auto said = [](const std::string& text) {
    try {
      return nlohmann::json::parse(text).dump();
    } catch (const nlohmann::json::exception& error) {
      return what_is_wrong(error);
    }
  };
  EXPECT_EQ(said("[1e999]"), "number overflow parsing '1e999'");
  EXPECT_TRUE(said("{").starts_with("parse error at line 1, column 2: "));
}

// An error as JSON, and back.

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

}  // namespace
}  // namespace lockstep::base
