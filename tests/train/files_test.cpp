// The files that a run leaves: metrics.jsonl, TensorBoard's events, and lines for people.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/run_folder/console.h"
#include "lockstep/run_folder/crc32c.h"
#include "lockstep/run_folder/event_file.h"
#include "lockstep/run_folder/metrics_file.h"
#include "lockstep/train/phase_clock.h"
#include "train/scratch.h"

namespace lockstep::train {
namespace {

// RFC 3720, appendix B.4
TEST(Crc32c, HasTheValuesOfTheRfc) {
  EXPECT_EQ(run_folder::crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(run_folder::crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(run_folder::crc32c("123456789"), 0xe3069283u);
}

TEST(MetricsFile, FloatsReadBackTheSameBits) {
  for (const double value : {0.1, 1.0 / 3, static_cast<double>(0.3178f), 5e-324, 1.7976931348623157e308}) {
    const auto json = nlohmann::json::parse(run_folder::to_json({{"loss", value}}));
    const double back = json["loss"];
    EXPECT_EQ(std::memcmp(&back, &value, sizeof value), 0) << value;
  }
}

TEST(MetricsFile, KeysKeepTheirOrder) {
  EXPECT_EQ(run_folder::to_json({{"event", "step"}, {"step", int64_t{4}}, {"a", 0.5}}),
            R"({"event":"step","step":4,"a":0.5})");
}

TEST(MetricsFile, GoesOnWhereTheCheckpointWas) {
  test::Scratch scratch;
  const auto path = scratch.path() / "metrics.jsonl";
  int64_t offset = 0;
  {
    run_folder::MetricsFile file(path);
    file.add({{"step", int64_t{1}}});
    offset = file.offset();
    file.add({{"step", int64_t{2}}});
    file.add({{"step", int64_t{3}}});
  }
  run_folder::MetricsFile file(path, offset);
  file.add({{"step", int64_t{2}}});
  EXPECT_EQ(base::read_text(path), "{\"step\":1}\n{\"step\":2}\n");
}

std::string lines(int64_t from, int64_t to) {
  std::string text;
  for (int64_t i = from; i <= to; ++i) text += run_folder::to_json({{"step", i}}) + "\n";
  return text;
}

void add(run_folder::MetricsFile& file, int64_t from, int64_t to) {
  for (int64_t i = from; i <= to; ++i) file.add({{"step", i}});
}

TEST(MetricsFile, WhatIsCutOffStaysUntilItIsNotNeeded) {
  test::Scratch scratch;
  const auto path = scratch.path() / "metrics.jsonl", cut = scratch.path() / "metrics.jsonl.cut";
  {
    run_folder::MetricsFile first(path);
    add(first, 1, 5);
    run_folder::MetricsFile second(path, static_cast<int64_t>(lines(1, 3).size()));
    EXPECT_EQ(base::read_text(cut), lines(4, 5));
    add(second, 6, 6);
  }
  run_folder::MetricsFile third(path, static_cast<int64_t>(lines(1, 2).size()));
  EXPECT_EQ(base::read_text(path), lines(1, 2));
  EXPECT_EQ(base::read_text(cut), lines(4, 5) + lines(3, 3) + lines(6, 6));
  third.forget_cut();
  EXPECT_FALSE(std::filesystem::exists(cut));
}

TEST(MetricsFile, APipeWhereCutLinesBelongIsRefusedAndNotWaitedFor) {
  test::Scratch scratch;
  const auto path = scratch.path() / "metrics.jsonl";
  {
    run_folder::MetricsFile first(path);
    add(first, 1, 4);
  }
  ASSERT_EQ(::mkfifo((path.string() + ".cut").c_str(), 0600), 0);
  EXPECT_THROW(run_folder::MetricsFile(path, static_cast<int64_t>(lines(1, 3).size())), InputError);
}

TEST(MetricsFile, MovesWithAllThatWasWritten) {
  test::Scratch scratch;
  const auto path = scratch.path() / "metrics.jsonl";
  run_folder::MetricsFile file(path);
  add(file, 1, 2);
  std::filesystem::remove(path);
  file.move_to(scratch.path() / "moved");
  add(file, 3, 3);
  EXPECT_EQ(base::read_text(scratch.path() / "moved"), lines(1, 3));
}

TEST(MetricsFile, AnOffsetPastTheEndIsTheEnd) {
  test::Scratch scratch;
  run_folder::MetricsFile file(scratch.path() / "metrics.jsonl", 1000);
  EXPECT_EQ(file.offset(), 0);
}

TEST(EventFile, RecordsAreFramedAndChecked) {
  test::Scratch scratch;
  run_folder::EventFile(scratch.path(), 0).add(7, {{"loss", 0.5}});
  const auto file = *std::filesystem::directory_iterator(scratch.path());
  EXPECT_EQ(file.path().filename().string().rfind("events.out.tfevents.", 0), 0u);
  const auto bytes = base::read_text(file.path());
  int records = 0;
  for (size_t at = 0; at < bytes.size(); ++records) {
    uint64_t length = 0;
    uint32_t crc = 0;
    std::memcpy(&length, &bytes[at], sizeof length);
    std::memcpy(&crc, &bytes[at + 8], sizeof crc);
    EXPECT_EQ(crc, run_folder::masked_crc32c(bytes.substr(at, 8)));
    std::memcpy(&crc, &bytes[at + 12 + length], sizeof crc);
    EXPECT_EQ(crc, run_folder::masked_crc32c(bytes.substr(at + 12, length)));
    at += length + 16;
  }
  EXPECT_EQ(records, 2);
}

TEST(ProgressLine, FitsTheTerminal) {
  const run_folder::Progress progress{.epoch = 1,
                                      .epochs = 5,
                                      .step = 100,
                                      .steps = 235,
                                      .loss = 0.31784,
                                      .samples_per_second = 7321,
                                      .seconds_left = 185};
  EXPECT_EQ(run_folder::progress_line(progress, 200),
            "[########............] Epoch 2/5  step 100/235  loss 0.3178  7321 samples/s  3m05s left");
  for (const int width : {0, 12, 40, 80}) {
    EXPECT_LE(run_folder::progress_line(progress, width).size(),
              static_cast<size_t>(std::max(width - 1, 10)));
  }
}

TEST(ShortTime, ReadsAsPeopleSayIt) {
  EXPECT_EQ(run_folder::short_time(-3), "0s");
  EXPECT_EQ(run_folder::short_time(59.4), "59s");
  EXPECT_EQ(run_folder::short_time(59.6), "1m00s");
  EXPECT_EQ(run_folder::short_time(7620), "2h07m");
}

TEST(PhaseClock, AddsUpToTheTimeThatPassed) {
  PhaseClock clock;
  const auto begin = PhaseClock::Clock::now();
  clock.enter_at(Phase::forward, begin);
  clock.enter_at(Phase::backward, begin + std::chrono::seconds(1));
  clock.enter_at(Phase::waiting, begin + std::chrono::seconds(3));
  clock.enter_at(Phase::other, begin + std::chrono::seconds(6));
  const auto& seconds = clock.seconds();
  EXPECT_DOUBLE_EQ(seconds[static_cast<size_t>(Phase::forward)], 1);
  EXPECT_DOUBLE_EQ(seconds[static_cast<size_t>(Phase::backward)], 2);
  EXPECT_DOUBLE_EQ(seconds[static_cast<size_t>(Phase::waiting)], 3);
}

}  // namespace
}  // namespace lockstep::train
