#include "lockstep/base/files/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "temp_folder.h"

namespace lockstep::base {
namespace {

struct FileMaps : testing::Test {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  test::TempFolder folder;
  std::string path = folder.write("numbers", std::string(4 * page, 'x'));

  FileMap map() const {
    const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    return {file.number(), 0, 4 * page, PROT_READ, MAP_SHARED, path};
  }
};

TEST_F(FileMaps, EndTheProcessIfTheFileBecomesShorter) {
  EXPECT_EXIT(
      {
        const auto whole = map();
        std::filesystem::resize_file(path, page);
        volatile auto count = std::count(whole.data(), whole.data() + whole.size(), 'x');
        std::ignore = count;
      },
      testing::ExitedWithCode(kFailed), "became shorter");
}

TEST_F(FileMaps, RefuseAFileThatWasCutWithinAPage) {
  const auto whole = map();
  EXPECT_NO_THROW(whole.refuse_cut());
  std::filesystem::resize_file(path, 4 * page - 10);
  EXPECT_THROW(whole.refuse_cut(), Error);
}

TEST_F(FileMaps, LeaveASignalFromAnotherProcessToTheSystem) {
  const auto whole = map();
  EXPECT_EXIT(std::raise(SIGBUS), testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace lockstep::base
