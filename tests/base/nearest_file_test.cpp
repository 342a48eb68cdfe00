#include "lockstep/base/files/file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "temp_folder.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class NearestFile : public ::testing::Test {
 protected:
  std::string near(const std::string& path) const {
    const auto found = base::nearest_file((folder_ / path).string());
    return found.empty() ? "" : fs::path(found).lexically_relative(folder_).string();
  }
  test::TempFolder temp_;
  fs::path folder_ = temp_.path();
};

TEST_F(NearestFile, IsASlipAway) {
  fs::create_directories(folder_ / "runs/mnist");
  temp_.write("a.yaml", "");
  temp_.write("runs/table.csv", "");
  EXPECT_EQ(near("runs/minst"), "runs/mnist");
  EXPECT_EQ(near("run/mnist"), "runs/mnist");
  EXPECT_EQ(near("runs/tabel.csv"), "runs/table.csv");
  EXPECT_EQ(near("runs/table"), "runs/table.csv");
  EXPECT_EQ(near("a.yaml"), "");  // it exists
  EXPECT_EQ(near("nowhere/else/x.yaml"), "");
  EXPECT_EQ(base::did_you_mean_file((folder_ / "runs/minst").string()),
            "did you mean " + (folder_ / "runs/mnist").string() + "? ");
}

TEST_F(NearestFile, OfAnythingAtAllIsNoError) {
  for (const std::string& path : {std::string(), std::string("/"), std::string("."), std::string("a\0b", 3),
                                  std::string(100'000, 'x'), std::string("a/") + std::string(300, 'b')})
    EXPECT_EQ(base::nearest_file(path), "");
  temp_.write("file", "");
  EXPECT_EQ(near("file/under.txt"), "");
}

}  // namespace
}  // namespace lockstep
