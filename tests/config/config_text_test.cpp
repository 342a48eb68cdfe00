// Files that are no config: an error each, and nothing is waited for.
#include "trainer/config/config_text.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "config/support.h"
#include "temp_folder.h"

namespace lockstep::test {
namespace {
namespace fs = std::filesystem;

class Read : public ::testing::Test {
 protected:
  static std::string refused(const std::string& path) {
    const auto error = error_from([&] { config::read_config_text(path); });
    EXPECT_FALSE(error.where().empty() || error.hint().empty()) << path;
    return error.what();
  }

  TempFolder temp_;
  fs::path folder_ = temp_.path();
};

TEST_F(Read, RefusesWhatIsNoFile) {
  EXPECT_TRUE(has(refused(folder_ / "none.yaml"), "No such file"));
  EXPECT_TRUE(has(refused(folder_), "this folder holds no config.yaml"));
  EXPECT_TRUE(has(refused("/dev/zero"), "is a device"));
  EXPECT_TRUE(has(refused(""), "cannot be read"));
  EXPECT_TRUE(has(refused(std::string(5000, 'a')), "too long"));
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(has(refused(folder_ / "pipe"), "is a pipe"));
  fs::create_symlink(folder_ / "loop", folder_ / "loop");
  refused(folder_ / "loop");
}

TEST_F(Read, GivesOfARunsFolderItsConfig) {
  fs::create_directories(folder_ / "runs/mnist");
  const auto path = temp_.write("runs/mnist/config.yaml", "train: {epochs: 3}\n");
  EXPECT_EQ(config::read_config_text(folder_ / "runs/mnist").name, path);
}

TEST_F(Read, NamesTheFileThatIsNear) {
  fs::create_directories(folder_ / "home/configs");
  temp_.write("home/configs/mnist.yaml", "");
  temp_.write("home/configs/pima.yaml", "");
  const auto before = fs::current_path();
  fs::current_path(folder_);
  ::setenv("LOCKSTEP_HOME", (folder_ / "home").c_str(), 1);
  const auto hint_for = [](const std::string& path) {
    return error_from([&] { config::read_config_text(path); }).hint();
  };
  for (const char* path :
       {"configs/mnits.yaml", "config/mnist.yaml", "configs/mnist.yml", "mnist.yaml", "mnist", "mnsit.yaml"})
    EXPECT_TRUE(has(hint_for(path), "did you mean configs/mnist.yaml? ")) << path << ": " << hint_for(path);
  EXPECT_EQ(hint_for("configs/unlike.yaml"), "check the path and its permissions");
  ::unsetenv("LOCKSTEP_HOME");
  fs::current_path(before);
}

TEST_F(Read, RefusesWhatMayNotBeRead) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const std::string path = temp_.write("secret.yaml", "x");
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  EXPECT_TRUE(has(refused(path), "Permission denied"));
}

}  // namespace
}  // namespace lockstep::test
