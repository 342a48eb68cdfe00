#include "trainer/run_folder/recorder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "temp_folder.h"

namespace lockstep::run_folder {
namespace {

TEST(MetricsFile, FloatsReadBackTheSameBits) {
  for (const double value : {0.1, 1.0 / 3, static_cast<double>(0.3178f), 5e-324, 1.7976931348623157e308}) {
    const auto json = nlohmann::json::parse(nlohmann::ordered_json{{"loss", value}}.dump());
    const double back = json["loss"];
    EXPECT_EQ(std::memcmp(&back, &value, sizeof value), 0) << value;
  }
}

TEST(MetricsFile, GoesOnWhereTheCheckpointWas) {
  test::TempFolder scratch;
  const auto path = scratch.path() / "metrics.jsonl";
  int64_t offset = 0;
  {
    MetricsFile file(path);
    file.add({{"step", int64_t{1}}});
    offset = file.offset();
    file.add({{"step", int64_t{2}}});
    file.add({{"step", int64_t{3}}});
  }
  MetricsFile file(path, offset);
  file.add({{"step", int64_t{2}}});
  EXPECT_EQ(base::read_text(path), "{\"step\":1}\n{\"step\":2}\n");
}

TEST(MetricsFile, WhatIsNoFileIsRefusedAndNotWrittenInto) {
  test::TempFolder scratch;
  const auto pipe = scratch.path() / "pipe", folder = scratch.path() / "folder";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_directory(folder);
  for (const auto& path : {pipe, folder, std::filesystem::path("/dev/null")}) {
    EXPECT_THROW((MetricsFile(path)), InputError) << path;
  }
}

// Where there are no locks, a job may be stopped between its look at the folder and its line.
TEST(MetricsFile, WhoeverHeldItBeforeWritesIntoNothingOfTheNext) {
  test::TempFolder scratch;
  const auto path = scratch.path() / "metrics.jsonl";
  MetricsFile stopped(path);
  stopped.add({{"step", int64_t{1}}});
  MetricsFile next(path, stopped.offset());
  next.add({{"step", int64_t{2}}});
  stopped.add({{"step", int64_t{3000}}});
  EXPECT_EQ(base::read_text(path), "{\"step\":1}\n{\"step\":2}\n");
}

}  // namespace
}  // namespace lockstep::run_folder
