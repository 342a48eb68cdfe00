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

}  // namespace
}  // namespace lockstep::base
