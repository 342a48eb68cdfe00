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
    const auto json = nlohmann::json::parse(to_json(MetricLine{{"loss", value}}));
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

std::string lines(int64_t from, int64_t to) {
  std::string text;
  for (int64_t i = from; i <= to; ++i) text += to_json(MetricLine{{"step", i}}) + "\n";
  return text;
}

void add(MetricsFile& file, int64_t from, int64_t to) {
  for (int64_t i = from; i <= to; ++i) file.add({{"step", i}});
}

TEST(MetricsFile, WhatIsCutOffStaysUntilItIsNotNeeded) {
  test::TempFolder scratch;
  const auto path = scratch.path() / "metrics.jsonl", cut = scratch.path() / "metrics.jsonl.cut";
  {
    MetricsFile first(path);
    add(first, 1, 5);
    MetricsFile second(path, static_cast<int64_t>(lines(1, 3).size()));
    EXPECT_EQ(base::read_text(cut), lines(4, 5));
    add(second, 6, 6);
  }
  MetricsFile third(path, static_cast<int64_t>(lines(1, 2).size()));
  EXPECT_EQ(base::read_text(path), lines(1, 2));
  EXPECT_EQ(base::read_text(cut), lines(4, 5) + lines(3, 3) + lines(6, 6));
  third.forget_cut();
  EXPECT_FALSE(std::filesystem::exists(cut));
}

TEST(MetricsFile, APipeWhereCutLinesBelongIsRefusedAndNotWaitedFor) {
  test::TempFolder scratch;
  const auto path = scratch.path() / "metrics.jsonl";
  {
    MetricsFile first(path);
    add(first, 1, 4);
  }
  ASSERT_EQ(::mkfifo((path.string() + ".cut").c_str(), 0600), 0);
  EXPECT_THROW(MetricsFile(path, static_cast<int64_t>(lines(1, 3).size())), InputError);
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

TEST(MetricsFile, MovesWithAllThatWasWritten) {
  test::TempFolder scratch;
  const auto path = scratch.path() / "metrics.jsonl";
  MetricsFile file(path);
  add(file, 1, 2);
  std::filesystem::remove(path);
  file.move_to(scratch.path() / "moved");
  add(file, 3, 3);
  EXPECT_EQ(base::read_text(scratch.path() / "moved"), lines(1, 3));
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
