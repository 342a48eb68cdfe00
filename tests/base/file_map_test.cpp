#include "lockstep/base/files/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "temp_folder.h"

namespace lockstep::base {
namespace {

struct FileMaps : testing::Test {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  test::TempFolder folder;
  std::string path = folder.write("numbers", std::string(4 * page, 'x'));

  FileMap map(int protection = PROT_READ) const {
    const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    return {file.number(), 0, 4 * page, protection, MAP_SHARED, path};
  }
  static size_t count(const FileMap& map, char what) {
    return static_cast<size_t>(std::count(map.data(), map.data() + map.size(), what));
  }
};

TEST_F(FileMaps, GiveZerosBehindTheEndOfAFileThatBecameShorter) {
  const auto whole = map(), other = map();
  EXPECT_EQ(count(whole, 'x'), 4 * page);
  EXPECT_NO_THROW(refuse_cut_files());
  std::filesystem::resize_file(path, page + 10);
  EXPECT_EQ(count(whole, 'x'), page + 10);
  EXPECT_TRUE(whole.was_cut());
  EXPECT_TRUE(other.was_cut());  // nobody has looked there, but it is gone
  for (const auto& refuse : std::initializer_list<std::function<void()>>{[&] { whole.refuse_cut(); },
                                                                         [] { refuse_cut_files(); }}) {
    try {
      refuse();
      ADD_FAILURE() << "nothing was said";
    } catch (const Error& error) {
      EXPECT_NE(describe(error).find(path), std::string::npos) << describe(error);
      EXPECT_NE(describe(error).find("became shorter"), std::string::npos) << describe(error);
    }
  }
}

TEST_F(FileMaps, LeaveASignalThatSomebodySendsToTheSystem) {
  const auto whole = map();
  EXPECT_EXIT(std::raise(SIGBUS), testing::KilledBySignal(SIGBUS), "");
}

TEST_F(FileMaps, AreForgottenWithTheirCuts) {
  {
    const auto cut = map(PROT_READ | PROT_WRITE);
    std::filesystem::resize_file(path, 0);
    cut.data()[0] = 'y';  // a write is no end either
    cut.data()[3 * page] = 'y';
    EXPECT_EQ(count(cut, 'y'), 2U);
    EXPECT_THROW(refuse_cut_files(), Error);
  }
  EXPECT_NO_THROW(refuse_cut_files());
}

}  // namespace
}  // namespace lockstep::base
