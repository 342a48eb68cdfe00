// One config for the job: rank 0's file and variables, everybody's own stage, the same error for all.
#include "trainer/setup/setup.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "ranks.h"
#include "refusal.h"

namespace lockstep::train {
namespace {
namespace fs = std::filesystem;

// Only rank 0 is given a file that exists: whoever else opened its path would fail.
class JobConfigTest : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    const int rank = test::runtime().job().rank;
    const auto name = "lockstep_job_config_" + std::to_string(getpid()) + ".yaml";
    path_ = (fs::temp_directory_path() / name).string();
    if (rank == 0) std::ofstream(path_) << text;
    return path_;
  }
  void TearDown() override {
    std::error_code none;
    fs::remove(path_, none);
  }
  std::string path_;
};

TEST_F(JobConfigTest, ComesFromRankZeroAlone) {
  const auto& runtime = test::runtime();
  const std::string rank = std::to_string(runtime.job().rank);
  ::setenv("LOCKSTEP_TEST_WHO", ("rank" + rank).c_str(), 1);
  if (runtime.job().rank == 0) ::setenv("LOCKSTEP_TEST_ONLY_ZERO", "zero", 1);
  const std::string file = write(
      "run: {dir: \"${LOCKSTEP_TEST_WHO}/${LOCKSTEP_TEST_ONLY_ZERO}\"}\n"
      "data: {stage: \"/tmp/${LOCKSTEP_TEST_WHO}\"}\n");
  const config::Loaded loaded = load_for_job(runtime, file, {"run.name=x-${LOCKSTEP_TEST_WHO}"}).loaded;
  EXPECT_EQ(loaded.settings.run.dir, "rank0/zero");
  EXPECT_EQ(loaded.settings.run.name, "x-rank0");
  EXPECT_EQ(loaded.settings.data.stage, "/tmp/rank" + rank);
  EXPECT_EQ(runtime.all_gather(loaded.origins.at("run.dir").text).back(), loaded.origins.at("run.dir").text);
}

std::string refusal(const std::string& path) {
  return describe(test::error_from([&] { load_for_job(test::runtime(), path, {}); }));
}

TEST_F(JobConfigTest, MistakesAreMetByAllAlike) {
  for (const char* text : {"train: {epoch: 3}", "train: [", "run: {dir: \"${LOCKSTEP_TEST_NOT_SET}\"}"}) {
    const std::string error = refusal(write(text));
    for (const std::string& other : test::runtime().all_gather(error)) EXPECT_EQ(other, error);
  }
  const std::string missing = "/nowhere/" + std::to_string(test::runtime().job().rank) + ".yaml";
  EXPECT_TRUE(test::has(refusal(missing), "/nowhere/0.yaml"));
}

}  // namespace
}  // namespace lockstep::train
