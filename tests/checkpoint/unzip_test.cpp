#include "lockstep/checkpoint/zip.h"

#include "lockstep/base/error.h"
#include "temp.h"

namespace lockstep::checkpoint {
namespace {
namespace fs = std::filesystem;

struct Unzip : testing::Test {
  test::TempFolder folder;
  std::string archive = folder / "a.zip", target = folder / "out";

  /// As Python packs it.
  void pack() {
    LOCKSTEP_PYTHON_OR_SKIP(python, "zipfile");
    std::ofstream(folder / "pack.py") << R"(
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as file:
    file.writestr("set/", "")
    file.writestr("set/long.txt", "a line of text\n" * 200000, zipfile.ZIP_DEFLATED)
    file.writestr("set/plain.txt", "as it is\n", zipfile.ZIP_STORED)
    file.writestr("set/none.txt", "", zipfile.ZIP_DEFLATED)
)";
    test::output_of(python + " " + (folder / "pack.py") + " " + archive);
  }
  void damage(size_t from_begin) {
    auto bytes = test::bytes_of(archive);
    bytes.at(from_begin) = static_cast<char>(bytes[from_begin] ^ 0x20);
    folder.write("a.zip", bytes);
  }
};

TEST_F(Unzip, BringsBackWhatWasPacked) {
  pack();
  if (IsSkipped()) return;
  unpack(archive, "set/long.txt", target);
  const auto text = test::bytes_of(target);
  EXPECT_EQ(text.size(), 200000U * 15);
  EXPECT_TRUE(text.ends_with("a line of text\n"));
  EXPECT_TRUE(is_unpacked(archive, "set/long.txt", target));
  unpack(archive, "set/plain.txt", target);
  EXPECT_EQ(test::bytes_of(target), "as it is\n");
  EXPECT_FALSE(is_unpacked(archive, "set/long.txt", target));
  unpack(archive, "set/none.txt", target);
  EXPECT_EQ(test::bytes_of(target), "");
}

TEST_F(Unzip, LeavesNothingOfADamagedArchive) {
  pack();
  if (IsSkipped()) return;
  EXPECT_THROW(unpack(archive, "set/other.txt", target), InputError);
  const auto size = fs::file_size(archive);
  damage(size / 3);  // among the packed bytes
  EXPECT_THROW(unpack(archive, "set/long.txt", target), InputError);
  EXPECT_FALSE(fs::exists(target));
  folder.write("a.zip", test::bytes_of(archive).substr(0, size / 2));
  EXPECT_THROW(unpack(archive, "set/long.txt", target), InputError);
  folder.write("a.zip", "");
  EXPECT_THROW(unpack(archive, "set/long.txt", target), InputError);
  EXPECT_THROW(is_unpacked(archive, "set/long.txt", target), InputError);
  EXPECT_FALSE(fs::exists(target));
}

}  // namespace
}  // namespace lockstep::checkpoint
