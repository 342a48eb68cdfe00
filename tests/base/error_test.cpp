#include "lockstep/base/error.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <type_traits>

#include "lockstep/base/memory.h"

namespace lockstep {

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
}

TEST(Error, OfACodeStaysAnInputError) {
  try {
    throw InputError("x", "y", "z").of(Code::gpu);
  } catch (const InputError& error) {
    EXPECT_EQ(error.exit_status(), kBadInput);
    EXPECT_EQ(error.hint(), "z");
  }
}

TEST(Error, OfAnyKindIsAFault) {
  EXPECT_EQ(fault_of(std::bad_alloc()).code, Code::no_memory);
  EXPECT_EQ(fault_of(std::runtime_error("x")).code, Code::failed);
  EXPECT_EQ(fault_of(std::runtime_error("x")).what, "x");
  const std::filesystem::filesystem_error missing("open", "/a/file",
                                                  std::make_error_code(std::errc::no_such_file_or_directory));
  EXPECT_EQ(fault_of(missing).code, Code::bad_input);
  EXPECT_EQ(fault_of(missing).where, "/a/file");
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

TEST(Error, APathThatCannotBeIsWrongInput) {
  try {
    (void)std::filesystem::exists(std::string(300, 'x'));
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_EQ(exit_status(error), kBadInput);
    EXPECT_EQ(describe(error), "File name too long\n  --> " + std::string(300, 'x') +
                                   "\n  hint: check the path and its permissions");
  }
}

}  // namespace lockstep
