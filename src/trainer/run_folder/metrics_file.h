#pragma once
// metrics.jsonl: a line an event, floats with enough digits to read back the same bits, no line twice.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/descriptor.h"

namespace lockstep::run_folder {

using MetricValue = std::variant<int64_t, double, std::string>;
/// The keys and values of one line, in the order to print.
using MetricLine = std::vector<std::pair<std::string, MetricValue>>;

std::string to_json(const MetricLine& line);

class MetricsFile {
 public:
  /// Goes on after `offset` bytes, in a new file of that name. What an earlier attempt wrote past its
  /// checkpoint is cut off, and kept beside it (".cut") until forget_cut().
  explicit MetricsFile(const std::filesystem::path& path, int64_t offset = 0);
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void add(const MetricLine& line);
  /// What a checkpoint remembers.
  int64_t offset() const { return offset_; }

  /// A newer checkpoint is whole: the lines that were cut off are written again, or never needed.
  void forget_cut() const;
  /// Goes on at another path with what was written so far, wherever the file itself is now.
  void move_to(const std::filesystem::path& path);

 private:
  void keep_what_follows(int64_t size) const;

  std::string path_;
  base::Descriptor file_;
  int64_t offset_ = 0;
};

}  // namespace lockstep::run_folder
