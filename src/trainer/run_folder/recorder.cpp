#include "trainer/run_folder/recorder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"

namespace lockstep::run_folder {
namespace {

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0x82F63B78u : 0u);
    table[byte] = value;
  }
  return table;
}
constexpr auto kTable = make_table();

static_assert(std::endian::native == std::endian::little,
              "records are written as this machine holds numbers");

// Protocol-buffer wire types and the field numbers of tensorflow's event.proto and summary.proto, and of the
// messages in a summary's metadata that TensorBoard's plug-in for hyperparameters reads.
enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
enum Field : uint32_t {
  kWallTime = 1,
  kStep = 2,
  kFileVersion = 3,
  kSummary = 5,
  kSessionLog = 7,
  kSummaryValue = 1,
  kTag = 1,
  kSimpleValue = 2,
  kSessionStatus = 1,
  kTensor = 8,
  kMetadata = 9,
  kFirst = 1,
  kSecond = 2,
  kThird = 3,
};

template <class T>
std::string raw(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

std::string key(Field field, Wire wire) {
  return varint(field << 3 | wire);
}

std::string message(Field field, std::string_view bytes) {
  return key(field, kBytes) + varint(bytes.size()) + std::string(bytes);
}

std::string scalar(const std::string& tag, double value) {
  return message(kSummaryValue,
                 message(kTag, tag) + key(kSimpleValue, kFixed32) + raw(static_cast<float>(value)));
}

std::string hyperparameters(const SettingTexts& settings) {
  std::string values;
  for (const auto& [name, text] : settings) {
    const auto number = base::parse_number<double>(text);
    const auto value = number ? key(kSecond, kFixed64) + raw(*number) : message(kThird, text);
    values += message(kFirst, message(kFirst, name) + message(kSecond, value));
  }
  const auto plugin = message(kFirst, "hparams") + message(kSecond, message(kThird, values));
  const auto empty = key(kFirst, kVarint) + varint(1) + message(kSecond, "");  // a tensor of floats
  return message(kSummaryValue, message(kTag, "_hparams_/session_start_info") + message(kTensor, empty) +
                                    message(kMetadata, message(kFirst, plugin)));
}

std::string file_name() {
  using namespace std::chrono;
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const auto now = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
  // TensorBoard reads a folder's files in the order of their names
  return format("events.out.tfevents.{:010}.{:06}.{}.{}", now / 1000000, now % 1000000, host, ::getpid());
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

EventFile::EventFile(const std::filesystem::path& folder, int64_t first_step, const SettingTexts& settings)
    : path_((folder / file_name()).string()),
      file_(base::open_to_write(path_, "TensorBoard's event file", O_APPEND)) {
  write_event(0, message(kFileVersion, "brain.Event:2"));
  constexpr uint64_t kStart = 1;
  if (first_step > 0)
    write_event(first_step, message(kSessionLog, key(kSessionStatus, kVarint) + varint(kStart)));
  if (!settings.empty()) write_event(first_step, message(kSummary, hyperparameters(settings)));
}

void EventFile::add(int64_t step, const Curves& curves) {
  std::string values;
  for (const auto& [tag, value] : curves) values += scalar(tag, value);
  write_event(step, message(kSummary, values));
}

void EventFile::write_event(int64_t step, std::string_view payload) {
  const std::string event = key(kWallTime, kFixed64) + raw(unix_now()) + key(kStep, kVarint) +
                            varint(static_cast<uint64_t>(step)) + std::string(payload);
  const std::string length = raw(static_cast<uint64_t>(event.size()));
  const std::string record = length + raw(masked_crc32c(length)) + event + raw(masked_crc32c(event));
  // one write a record: a reader never sees half of one, and a full disk costs curves, not the run
  const auto n = ::write(file_.number(), record.data(), record.size());
  if (n == static_cast<ssize_t>(record.size())) return;
  const int reason = n < 0 ? errno : ENOSPC;
  // TensorBoard reads nothing behind half a record
  const off_t end = ::lseek(file_.number(), 0, SEEK_CUR);
  const bool cut = n <= 0 || ::ftruncate(file_.number(), end - n) == 0;
  throw Error(std::string("cannot write TensorBoard's event file: ") + std::strerror(reason) +
                  (cut ? "" : ", and its last record is incomplete"),
              path_, "free disk space; lockstep then continues the curves");
}

MetricsFile::MetricsFile(const std::filesystem::path& path, int64_t offset) : path_(path.string()) {
  constexpr size_t kMostBytes = size_t{1} << 30;
  if (offset > 0 && std::filesystem::exists(path)) {
    auto text = base::read_small_file(path_, kMostBytes, "the run's metrics");
    text.resize(std::min(text.size(), static_cast<size_t>(offset)));
    offset_ = static_cast<int64_t>(text.size());
    base::replace_file(path_, text);
  }
  file_ = base::open_to_write(path_, "the run's metrics");
  if (::ftruncate(file_.number(), offset_) != 0)
    throw Error(std::string("cannot write: ") + std::strerror(errno), path_, "check the file system");
}

void MetricsFile::add(const nlohmann::ordered_json& line) {
  const std::string text = base::as_line(line) + "\n";
  const ssize_t n = ::pwrite(file_.number(), text.data(), text.size(), offset_);
  if (n != static_cast<ssize_t>(text.size())) {
    const int reason = n < 0 ? errno : ENOSPC;
    // what a full disk took of a line is cut off: every line that stays is whole
    const bool cut = ::ftruncate(file_.number(), offset_) == 0;
    throw Error(std::string("cannot write: ") + std::strerror(reason) +
                    (cut ? "" : ", and its last line is incomplete"),
                path_, "free disk space; lockstep then continues writing");
  }
  offset_ += n;
}

Recorder::Recorder(std::shared_ptr<HeldFolder> folder, RunStatus status, int64_t metrics_offset,
                   const SettingTexts& settings)
    : folder_(std::move(folder)),
      status_(std::move(status)),
      metrics_(folder_->path() / "metrics.jsonl", metrics_offset),
      events_(folder_->path(), status_.step, settings) {
  write_status(folder_->path(), status_, [this] { folder_->check(); });
  // a thousand tasks of an array load the file system: after a minute, only every 30 s, or 10 s if asked
  using Clock = std::chrono::steady_clock;
  folder_->on_heartbeat([this, start = Clock::now(), last = Clock::time_point()](bool wanted) mutable {
    using namespace std::chrono_literals;
    const auto now = Clock::now();
    if (now - start > 1min && now - last < (wanted ? 10s : 30s)) return;
    last = now;
    try {
      write();
    } catch (const FolderLost&) {  // the trainer learns of it at its next note()
    }
  });
}

void Recorder::add(int64_t step, const nlohmann::ordered_json& line, const Curves& curves) {
  folder_->refuse_if_lost();
  guarded([&] { metrics_.add(line); });
  guarded([&] { events_.add(step, curves); });
}

void Recorder::note(const std::function<void(RunStatus&)>& change) {
  folder_->refuse_if_lost();
  const std::lock_guard lock(status_mutex_);
  change(status_);
}

void Recorder::update(const std::function<void(RunStatus&)>& change) {
  note(change);
  write();
}

void Recorder::update_soon(const std::function<void(RunStatus&)>& change) {
  note(change);
  folder_->wake_heartbeat();
}

void Recorder::write() {
  const std::lock_guard order(writing_);
  guarded([this] {
    std::unique_lock lock(status_mutex_);
    const auto status = status_;
    lock.unlock();
    write_status(folder_->path(), status, [this] { folder_->check(); });
  });
}

void Recorder::saved(const std::string& checkpoint) {
  update_soon([&](RunStatus& status) {
    status.checkpoint = "checkpoints/" + std::filesystem::path(checkpoint).filename().string();
    status.unsaved.clear();
  });
}

void Recorder::not_saved(const std::string& reason) {
  note([&](RunStatus& status) { status.unsaved = reason; });
}

void Recorder::report_failure(const std::string& reason) noexcept {
  try {
    update([&](RunStatus& status) {
      status.state = RunState::failed;
      status.reason = reason;
    });
  } catch (const std::exception& error) {
    log::warning(describe(error));
  }
}

void Recorder::guarded(const std::function<void()>& write) {
  try {
    write();
  } catch (const FolderLost&) {
    throw;
  } catch (const std::exception& error) {
    if (!warned_.exchange(true)) log::warning(describe(error) + "\nTraining continues.");
  }
}

}  // namespace lockstep::run_folder
