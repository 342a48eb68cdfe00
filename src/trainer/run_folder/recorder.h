#pragma once
// What rank 0 leaves in the run's folder while it trains. A full disk costs curves, never the run.

#include <nlohmann/json_fwd.hpp>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/descriptor.h"
#include "trainer/run_folder/folder.h"
#include "trainer/run_folder/status.h"

namespace lockstep::run_folder {

// Scalars for TensorBoard: one events.out.tfevents file an attempt, written without protobuf.

using Curves = std::vector<std::pair<std::string, double>>;

/// Appends to a new file in `folder`. An attempt that starts at a later step tells TensorBoard to forget what
/// an earlier file says from that step on.
class EventFile {
 public:
  EventFile(const std::filesystem::path& folder, int64_t first_step);
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  void add(int64_t step, const Curves& curves);

 private:
  void write_event(int64_t step, std::string_view payload);
  std::string path_;
  base::Descriptor file_;
};

// metrics.jsonl: a line an event, floats with enough digits to read back the same bits, no line twice.

class MetricsFile {
 public:
  /// Goes on after `offset` bytes, in a new file of that name: an earlier attempt that was suspended may
  /// still have the old one open. Lines after `offset` are dropped; the resumed run writes them again.
  explicit MetricsFile(const std::filesystem::path& path, int64_t offset = 0);
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void add(const nlohmann::ordered_json& line);
  /// What a checkpoint remembers.
  int64_t offset() const { return offset_; }

 private:
  std::string path_;
  base::Descriptor file_;
  int64_t offset_ = 0;
};

class Recorder {
 public:
  /// Continues metrics.jsonl after `metrics_offset` bytes. The folder's thread renews status.json at each
  /// beat, so that a run in a long step or evaluation is known to live.
  Recorder(std::shared_ptr<HeldFolder> folder, RunStatus status, int64_t metrics_offset);
  ~Recorder() { folder_->on_beat(nullptr); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // All of these throw FolderLost; other errors are warnings. All but add() may be called from any thread.
  /// A line of metrics.jsonl, and what TensorBoard shows of it.
  void add(int64_t step, const nlohmann::ordered_json& line, const Curves& curves);
  int64_t metrics_offset() const { return metrics_.offset(); }
  /// Changes what status.json says when it is written next.
  void note(const std::function<void(RunStatus&)>& change);
  /// Changes status.json.
  void update(const std::function<void(RunStatus&)>& change);
  /// The same within a second, by the folder's thread: short epochs wait for no disk.
  void update_soon(const std::function<void(RunStatus&)>& change);
  /// A checkpoint of this attempt is whole.
  void saved(const std::string& checkpoint);
  /// A checkpoint could not be written: status.json says so until one is whole.
  void not_saved(const std::string& reason);
  /// Reports that the run has failed, as far as possible: for a thread in which nothing may be thrown.
  void report_failure(const std::string& reason) noexcept;

 private:
  void write();
  void guarded(const std::function<void()>& write);

  std::shared_ptr<HeldFolder> folder_;
  std::mutex status_mutex_;  // of status_ alone, held for moments: training never waits for a disk here
  RunStatus status_;
  std::mutex writing_;  // status.json: what is written last is the newest
  MetricsFile metrics_;
  EventFile events_;
  std::atomic<bool> warned_ = false;
};

// CRC-32C (Castagnoli, RFC 3720), as TensorBoard's record files want it.

uint32_t crc32c(std::string_view bytes);

/// Rotated and offset, so that a checksum of bytes that hold checksums stays a good one (TFRecord).
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace lockstep::run_folder
