#include "lockstep/base/pack.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Pack, AnyBytesComeBack) {
  const std::vector<std::string> texts = {"", "12:34", std::string("a\0b", 3), "\n"};
  EXPECT_EQ(base::unpack_texts(base::pack_texts(texts)), texts);
  EXPECT_TRUE(base::unpack_texts("").empty());
}

TEST(Pack, WhatIsDamagedIsAnError) {
  for (const char* text : {"x", "5", "5:abc", "-1:a", "18446744073709551615:a", "1:ab:", ":", "3abc"}) {
    EXPECT_THROW(base::unpack_texts(text), Error) << text;
  }
}

TEST(Pack, AnErrorKeepsItsKindAndItsWords) {
  for (const bool input : {true, false}) {
    const auto packed = input ? base::pack_error(InputError("what", "where", "to do"))
                              : base::pack_error(Error("what", "where"));
    try {
      base::throw_packed_error(packed);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_status(), input ? kBadInput : kFailed);
      EXPECT_STREQ(error.what(), "what");
      EXPECT_EQ(error.where(), "where");
      EXPECT_EQ(error.hint(), input ? "to do" : "");
    }
  }
  EXPECT_THROW(base::throw_packed_error("1:a"), Error);
}

}  // namespace
}  // namespace lockstep
