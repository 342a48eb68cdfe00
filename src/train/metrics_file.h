#pragma once
// metrics.jsonl: a line an event, floats with enough digits to read back the same bits, no line twice.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/descriptor.h"

namespace lockstep::train {

using MetricValue = std::variant<int64_t, double, std::string>;
/// The keys and values of one line, in the order to print.
using MetricLine = std::vector<std::pair<std::string, MetricValue>>;

std::string to_json(const MetricLine& line);

class MetricsFile {
 public:
  /// Goes on after `offset` bytes; what an earlier attempt wrote past its checkpoint is cut off.
  explicit MetricsFile(const std::filesystem::path& path, int64_t offset = 0);
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void add(const MetricLine& line);
  /// What a checkpoint remembers.
  int64_t offset() const { return offset_; }

 private:
  std::string path_;
  Descriptor file_;
  int64_t offset_ = 0;
};

}  // namespace lockstep::train
