#include "lockstep/base/error.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/base/files/pack.h"
#include "lockstep/base/memory.h"

namespace lockstep {
namespace {

TEST(Error, DescribesWhatWhereAndWhatToDo) {
  EXPECT_EQ(describe(InputError("bad key", "a.yaml:3:1", "remove it")),
            "bad key\n  --> a.yaml:3:1\n  hint: remove it");
  EXPECT_EQ(describe(Error("plain")), "plain");
  EXPECT_EQ(InputError("x").exit_status(), kBadInput);
}

TEST(Error, HasACodeThatProgramsRead) {
  EXPECT_EQ(Error("x").code(), Code::failed);
  EXPECT_EQ(InputError("x").code(), Code::bad_input);
  EXPECT_EQ(Error("x").of(Code::rank_late, {3}).ranks(), std::vector<int>{3});
  for (int number = 0; number <= static_cast<int>(Code::no_gradient); ++number) {
    const auto code = static_cast<Code>(number);
    EXPECT_EQ(code_of(name_of(code)), code) << name_of(code);
  }
  EXPECT_EQ(code_of("no such code"), Code::failed);
  EXPECT_THROW(throw InputError("x", "y", "z").of(Code::gpu), InputError) << "stays one";
}

std::filesystem::filesystem_error missing_file() {
  return {"open", "/a/file", std::make_error_code(std::errc::no_such_file_or_directory)};
}

TEST(Error, OfAnyKindIsAFault) {
  EXPECT_EQ(fault_of(std::bad_alloc()).code, Code::no_memory);
  EXPECT_EQ(fault_of(std::runtime_error("x")).code, Code::failed);
  EXPECT_EQ(fault_of(std::runtime_error("x")).what, "x");
  EXPECT_EQ(exit_status(missing_file()), kBadInput);
  EXPECT_EQ(fault_of(missing_file()).code, Code::bad_input);
  EXPECT_EQ(fault_of(missing_file()).where, "/a/file");
  EXPECT_NE(fault_of(std::bad_alloc()).hint, "");
  EXPECT_EQ(fault_of(Error("x", "y").of(Code::nccl)).where, "y");
}

TEST(Error, OfLibtorchLosesItsStack) {
  const std::string what = "x\nException raised from f at a.cpp";
  EXPECT_EQ(fault_of(Error(what)).what, "x");
  EXPECT_EQ(fault_of(std::runtime_error(what)).what, "x");
  EXPECT_EQ(describe(Error(what, "here")), "x\n  --> here");
}

TEST(Error, OfAGpusMemorySaysWhatHelpsThere) {
  const std::runtime_error full(
      "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.2 GiB of which 1 GiB "
      "is "
      "free. If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments");
  EXPECT_EQ(fault_of(full).code, Code::no_memory);
  EXPECT_EQ(
      fault_of(full).what,
      "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.2 GiB of which 1 GiB "
      "is free.");
  EXPECT_NE(fault_of(full).hint.find("data.batch_size"), std::string::npos);
}

TEST(Error, SaysWhereMemoryEndedAndWhatToDo) {
  EXPECT_NE(describe(std::bad_alloc()).find("hint: request more memory"), std::string::npos);
  const auto where_of = [](const auto& error) {
    try {
      base::with_memory_for("a.pt", [&] { throw error; });
    } catch (const Error& seen) {
      return seen.where();
    } catch (const std::exception&) {
    }
    return std::string("passed on");
  };
  EXPECT_EQ(where_of(std::bad_alloc()), "a.pt");
  EXPECT_EQ(where_of(std::runtime_error("DefaultCPUAllocator: can't allocate memory")), "a.pt");
  EXPECT_EQ(where_of(InputError("x", "b.pt")), "b.pt");
  EXPECT_EQ(where_of(std::runtime_error("x")), "passed on");
}

TEST(Pack, AnyBytesComeBack) {
  const std::vector<std::string> texts = {"", "12:34", std::string("a\0b", 3), "\n"};
  EXPECT_EQ(base::unpack_texts(base::pack_texts(texts)), texts);
  EXPECT_TRUE(base::unpack_texts("").empty());
}

TEST(Pack, WhatIsDamagedIsAnError) {
  for (const char* text : {"x", "5", "5:abc", "-1:a", "18446744073709551615:a", "1:ab:", ":", "3abc"})
    EXPECT_THROW(base::unpack_texts(text), Error) << text;
}

Fault sent(const std::exception& error, ExitStatus wanted) {
  try {
    base::throw_packed_error(base::pack_error(error));
  } catch (const Error& same) {
    EXPECT_EQ(same.exit_status(), wanted);
    return same.fault();
  }
}

TEST(Pack, AnErrorKeepsItsKindAndAllOfItsFault) {
  const Fault fault{.code = Code::calls_differ,
                    .ranks = {0, 12},
                    .what = "open \xe4.csv",  // not UTF-8
                    .where = "where",
                    .hint = "to do",
                    .met_in = {.call = "barrier", .number = 3},
                    .seen = {{.rank = 1, .call = "all-reduce", .number = 3}}};
  for (const auto& same : {sent(Error(fault), kFailed), sent(InputError(fault), kBadInput)}) {
    EXPECT_EQ(describe(Error(same)), "open \uFFFD.csv\n  --> where\n  hint: to do");
    EXPECT_EQ(same.code, Code::calls_differ);
    EXPECT_EQ(same.ranks, (std::vector<int>{0, 12}));
    EXPECT_EQ(same.met_in.number, 3u);
    ASSERT_EQ(same.seen.size(), 1u);
    EXPECT_EQ(same.seen[0].call, "all-reduce");
  }
  EXPECT_THROW(base::throw_packed_error("1:a"), Error);
}

TEST(Pack, AForeignErrorKeepsItsWordsAndItsExitStatus) {
  EXPECT_EQ(sent(std::out_of_range("too far"), kFailed).what, "too far");
  EXPECT_EQ(describe(Error(sent(missing_file(), kBadInput))), describe(missing_file()));
}

TEST(Pack, AnOutcomeIsTheResultOrTheError) {
  std::string bytes("a\0b", 3);
  EXPECT_EQ(base::unpack_outcome(base::pack_outcome([&] { return bytes; })), bytes);
  EXPECT_EQ(base::unpack_outcome(base::pack_outcome([] { return std::string(); })), "");
  const auto failed = base::pack_outcome([]() -> std::string { throw InputError("what", "where", "to do"); });
  EXPECT_THROW(base::unpack_outcome(failed), InputError);
  EXPECT_THROW(base::unpack_outcome(""), Error);
  EXPECT_THROW(base::unpack_outcome("x"), Error);
}

}  // namespace
}  // namespace lockstep
