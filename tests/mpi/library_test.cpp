// Which library is taken and what is said where there is none. A library stays loaded: each case that loads
// one does so in a process of its own.
#include "lockstep/mpi/library.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/base/paths.h"
#include "lockstep/mpi/calls.h"
#include "refusal.h"
#include "temp_folder.h"

namespace lockstep::mpi {
namespace {

using ::testing::ExitedWithCode;

const std::string kWhole = base::find_beside("pretend_standard.so");
const std::string kIncomplete = base::find_beside("pretend_incomplete.so");

void load_and_tell(const LibraryRequest& request) {
  try {
    const auto& library = load(request);
    std::fprintf(stderr, "%s, %s, because %s, in %s\n", title_of(library.family).data(),
                 library.version.c_str(), library.because.c_str(), library.file.c_str());
    std::exit(&library == loaded() && calls().comm_rank ? kDone : 9);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", describe(error).c_str());
    std::exit(exit_status(error));
  }
}

}  // namespace

TEST(MpiLibrary, OfAFamilyThatDidNotStartTheRanksIsRefused) {
  const LibraryRequest request{.families = {Family::open_mpi}, .because = "OMPI_COMM_WORLD_RANK is set"};
  EXPECT_EQ(test::refusal_of([&] { apply_choice(request, "mpich"); }),
            "LOCKSTEP_MPI is mpich, but another MPI started the ranks / OMPI_COMM_WORLD_RANK is set / "
            "unset LOCKSTEP_MPI, or start the ranks with the mpirun of MPICH");
}

TEST(MpiLibraryDeathTest, OfTheStandardIsCalledAsItIs) {
  ::setenv("PRETEND_VERSION", "Pretend Version:\t5.1.0, of a test\nand more", 1);
  EXPECT_EXIT(load_and_tell({.file = kWhole, .because = "x"}), ExitedWithCode(kDone),
              "the MPI standard ABI, Pretend 5.1.0, because x, in .*/pretend_standard.so");
  ::unsetenv("PRETEND_VERSION");
}

TEST(MpiLibraryDeathTest, OfAnotherInterfaceIsTranslated) {
  if (base::find_beside("liblockstep_mpi_mpich.so").empty()) GTEST_SKIP() << "built without MPICH's mpi.h";
  ::setenv("PRETEND_ABI", "-1", 1);
  EXPECT_EXIT(load_and_tell({.file = kWhole}), ExitedWithCode(kDone), "^MPICH, Pretend MPI v1.2");
  EXPECT_EXIT(
      load_and_tell({.file = kIncomplete}), ExitedWithCode(kFailed),
      "cannot load lockstep's plug-in for MPICH: .*MPI_Wait(.|\n)*hint: check that this MPI is complete");
  ::unsetenv("PRETEND_ABI");
}

TEST(MpiLibraryDeathTest, ThatLacksACallIsNamedWithIt) {
  EXPECT_EXIT(load_and_tell({.file = kIncomplete}), ExitedWithCode(kFailed),
              "this MPI library has no MPI_Wait\n  --> .*/pretend_incomplete.so\n  hint: use an MPI "
              "library that supports all of MPI-3");
}

TEST(MpiLibraryDeathTest, IsTheFirstThatLoadsInTheFoldersOrder) {
  const test::TempFolder folders;
  for (const char* name : {"empty", "broken", "first", "second"})
    std::filesystem::create_directory(folders / name);
  folders.write("broken/libmpi_abi.so.1", "no library");
  for (const char* name : {"first", "second"})
    std::filesystem::create_symlink(kWhole, folders / (name + std::string("/libmpi_abi.so.1")));
  EXPECT_EXIT(load_and_tell({.families = {Family::standard},
                             .folders = {folders / "empty", folders / "broken", folders / "first",
                                         folders / "second"}}),
              ExitedWithCode(kDone), "in .*/first/libmpi_abi.so.1");
}

TEST(MpiLibraryDeathTest, InTheProcessAlreadyIsTaken) {
  ASSERT_FALSE(kWhole.empty());
  const auto brought_by_another = [] {
    ::dlopen(kWhole.c_str(), RTLD_LAZY | RTLD_LOCAL);
    load_and_tell({.file = "/nowhere/libmpi.so"});
  };
  EXPECT_EXIT(brought_by_another(), ExitedWithCode(kDone),
              "because already loaded in this process, in .*/pretend_standard.so");
}

TEST(MpiLibraryDeathTest, ThatIsNoneIsNamedWithWhatToDo) {
  const test::TempFolder folder;
  const auto file = folder.write("libmpi.so", "no library");
  const auto refused = ExitedWithCode(kBadInput);
  EXPECT_EXIT(
      load_and_tell({.file = "/nowhere/libmpi.so", .because = "LOCKSTEP_MPI is it"}), refused,
      "^/nowhere/libmpi.so is not found\n  --> LOCKSTEP_MPI is it\n  hint: load the module of the MPI");
  EXPECT_EXIT(load_and_tell({.file = file}), refused, "^cannot load an MPI library: .*libmpi.so: ");
  EXPECT_EXIT(load_and_tell({.file = "libm.so.6"}), refused, "libm.so.6: it has no MPI_Init_thread");
  EXPECT_EXIT(load_and_tell({.file = folder.path()}), refused,
              "^LOCKSTEP_MPI is a folder\n  --> .*\n  hint: set it to the libmpi.so in that folder");
}

}  // namespace lockstep::mpi
