#include "lockstep/base/files/pack.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/base/error.h"

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

TEST(Pack, AnErrorKeepsItsCodeAndItsRanks) {
  for (const bool input : {false, true}) {
    const auto packed = input ? base::pack_error(InputError("what").of(Code::gpu, {0, 12}))
                              : base::pack_error(Error("what").of(Code::rank_lost, {0, 12}));
    try {
      base::throw_packed_error(packed);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), input ? Code::gpu : Code::rank_lost);
      EXPECT_EQ(error.ranks(), (std::vector<int>{0, 12}));
      EXPECT_EQ(error.exit_status(), input ? kBadInput : kFailed);
    }
  }
}

TEST(Pack, AnErrorKeepsWhereTheRanksWere) {
  const Fault fault{.code = Code::calls_differ,
                    .what = "open \xe4.csv",  // not UTF-8
                    .met_in = {.call = "barrier", .number = 3},
                    .seen = {{.rank = 1, .call = "all-reduce", .number = 3}}};
  try {
    base::throw_packed_error(base::pack_error(Error(fault)));
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "open \uFFFD.csv");
    EXPECT_EQ(error.fault().met_in.number, 3u);
    ASSERT_EQ(error.fault().seen.size(), 1u);
    EXPECT_EQ(error.fault().seen[0].call, "all-reduce");
  }
}

TEST(Pack, AForeignErrorKeepsItsWordsAndItsExitStatus) {
  try {
    base::throw_packed_error(base::pack_error(std::out_of_range("too far")));
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "too far");
    EXPECT_EQ(error.exit_status(), kFailed);
  }
  const std::filesystem::filesystem_error missing("open", "/a/file",
                                                  std::make_error_code(std::errc::no_such_file_or_directory));
  try {
    base::throw_packed_error(base::pack_error(missing));
  } catch (const Error& error) {
    EXPECT_EQ(describe(error), describe(missing));
    EXPECT_EQ(error.exit_status(), kBadInput);
  }
}

TEST(Pack, AnOutcomeIsTheResultOrTheError) {
  const std::string bytes("a\0b", 3);
  EXPECT_EQ(base::unpack_outcome(base::pack_outcome([&] { return bytes; })), bytes);
  EXPECT_EQ(base::unpack_outcome(base::pack_outcome([] { return std::string(); })), "");
  const auto failed = base::pack_outcome([]() -> std::string { throw InputError("what", "where", "to do"); });
  EXPECT_THROW(base::unpack_outcome(failed), InputError);
  EXPECT_THROW(base::unpack_outcome(""), Error);
  EXPECT_THROW(base::unpack_outcome("x"), Error);
}

}  // namespace
}  // namespace lockstep
