// The process's switches of libtorch's: what a config says is what libtorch then does.
#include "trainer/setup/setup.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/checkpoint/store.h"
#include "temp_folder.h"
#include "trainer/config/config_text.h"
#include "trainer/config/keys.h"
#include "trainer/provoke/provoke.h"
#include "trainer/run_folder/status.h"
#include "trainer/setup/saved.h"

namespace lockstep::train {
namespace {

TEST(Arithmetic, IsLeftAloneUnlessTheConfigSaysOtherwise) {
  at::globalContext().setBenchmarkCuDNN(true);
  choose_arithmetic(TrainSettings{});
  EXPECT_TRUE(at::globalContext().benchmarkCuDNN()) << "the program's own choice";
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
  at::globalContext().setBenchmarkCuDNN(false);
}

TEST(Arithmetic, OfTf32IsAllOrNone) {
  for (const bool all : {true, false, true}) {
    TrainSettings train;
    train.tf32 = all ? Tf32::all : Tf32::none;
    choose_arithmetic(train);
    EXPECT_EQ(at::globalContext().allowTF32CuDNN(), all);
    EXPECT_EQ(at::globalContext().allowTF32CuBLAS(), all);
  }
  at::globalContext().setAllowTF32CuDNN(true);
  at::globalContext().setAllowTF32CuBLAS(false);
}

TEST(Arithmetic, OfTheSameBitsTellsCublas) {
  ::unsetenv("CUBLAS_WORKSPACE_CONFIG");
  TrainSettings train;
  train.cudnn_benchmark = train.deterministic = true;
  choose_arithmetic(train);
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  EXPECT_TRUE(at::globalContext().benchmarkCuDNN());
  EXPECT_STREQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), ":4096:8");
  at::globalContext().setDeterministicAlgorithms(false, false);
  at::globalContext().setBenchmarkCuDNN(false);
}

TEST(InjectedFaults, AreTheChoicesOfTheKey) {
  std::vector<std::string> names = {"none"};
  for (const auto& fault : kInjectedFaults) names.push_back(fault.name);
  EXPECT_EQ(config::find_key("train.provoke")->rules.choices, names);
}

namespace fs = std::filesystem;

class NewestSaved : public ::testing::Test {
 protected:
  NewestSaved() { fs::create_directory(checkpoints()); }
  fs::path checkpoints() const { return scratch_.path() / "checkpoints"; }
  std::optional<SavedCheckpoint> look() const {
    return newest_saved(Team({}, nullptr, at::kCPU), scratch_.path().string());
  }
  test::TempFolder scratch_;
};

TEST_F(NewestSaved, ARunThatCameToNoneStartsAnew) {
  EXPECT_FALSE(look());
  fs::remove(checkpoints());
  EXPECT_FALSE(look());
  run_folder::write_status(scratch_.path(), {});
  EXPECT_FALSE(look());
}

TEST_F(NewestSaved, IsTheNewestWholeOne) {
  CheckpointStore(checkpoints()).save(make_dict({{"iter_no", int64_t{7}}}));
  base::replace_file(checkpoints() / "step-00000009.pt", "damaged");
  EXPECT_EQ(look()->path, checkpoints() / "step-00000007.pt");
}

TEST_F(NewestSaved, NeverStartsAnewOverCheckpointsThatAreDamagedOrGone) {
  base::replace_file(checkpoints() / "step-00000009.pt", "damaged");
  EXPECT_THROW(look(), InputError);
  fs::remove(checkpoints() / "step-00000009.pt");
  run_folder::RunStatus status;
  status.checkpoint = "checkpoints/step-00000009.pt";
  run_folder::write_status(scratch_.path(), status);
  EXPECT_THROW(look(), InputError);
}

}  // namespace
}  // namespace lockstep::train

// docs/reference/config.md holds the tables of keys between two marks; a change has to be copied there.

namespace lockstep::test {
namespace {

TEST(Reference, IsWhatTheDocsHold) {
  const auto page = base::read_text("docs/reference/config.md");
  const std::string begin = "<!-- generated: reference -->\n";
  const size_t at = page.find(begin);
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(page.substr(at + begin.size()), "\n" + config::reference() + "<!-- end -->\n")
      << "run: build/release/bin/lockstep config --reference, and put it there";
}

}  // namespace
}  // namespace lockstep::test
