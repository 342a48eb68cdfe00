#pragma once
// What rank 0 writes into the run's folder while it trains. A full disk costs curves, never the run.

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

using Curves = std::vector<std::pair<std::string, double>>;
using SettingTexts = std::vector<std::pair<std::string, std::string>>;  // a config's keys and their values

/// TensorBoard's file, a new one for each attempt, written without protobuf. One that starts at a later step
/// makes TensorBoard drop what earlier files hold from that step on.
class EventFile {
 public:
  EventFile(const std::filesystem::path& folder, int64_t first_step, const SettingTexts& settings);
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  void add(int64_t step, const Curves& curves);

 private:
  void write_event(int64_t step, std::string_view payload);
  std::string path_;
  base::Descriptor file_;
};

// metrics.jsonl: floats have enough digits to read back the same bits.

class MetricsFile {
 public:
  /// Continues after `offset` bytes in a new file, because a suspended attempt may still have the old one
  /// open. Drops the lines after `offset`, which the run writes again.
  explicit MetricsFile(const std::filesystem::path& path, int64_t offset = 0);
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void add(const nlohmann::ordered_json& line);
  int64_t offset() const { return offset_; }

 private:
  std::string path_;
  base::Descriptor file_;
  int64_t offset_ = 0;
};

class Recorder {
 public:
  /// Continues metrics.jsonl after `metrics_offset` bytes. The folder's thread renews status.json.
  /// TensorBoard shows `settings` as hyperparameters.
  Recorder(std::shared_ptr<HeldFolder> folder, RunStatus status, int64_t metrics_offset,
           const SettingTexts& settings = {});
  ~Recorder() { folder_->on_heartbeat(nullptr); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // All of these throw FolderLost; other errors are warnings. All but add() may be called from any thread.
  /// A line of metrics.jsonl, and what TensorBoard shows of it.
  void add(int64_t step, const nlohmann::ordered_json& line, const Curves& curves);
  int64_t metrics_offset() const { return metrics_.offset(); }
  /// Changes the next status.json.
  void note(const std::function<void(RunStatus&)>& change);
  /// Changes and writes status.json.
  void update(const std::function<void(RunStatus&)>& change);
  /// The same within a second, in the folder's thread: short epochs do not wait for the disk.
  void update_soon(const std::function<void(RunStatus&)>& change);
  /// A checkpoint of this attempt is complete.
  void saved(const std::string& checkpoint);
  /// A checkpoint could not be written; status.json says so until the next is complete.
  void not_saved(const std::string& reason);
  /// Reports a failure as far as possible, and never throws.
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
