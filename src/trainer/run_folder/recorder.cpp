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
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"

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

namespace {

static_assert(std::endian::native == std::endian::little,
              "records are written as this machine holds numbers");

// Protocol-buffer wire types and the field numbers of tensorflow/core/util/event.proto,
// framework/summary.proto.
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

std::string file_name() {
  using namespace std::chrono;
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const auto now = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
  // TensorBoard reads a folder's files in the order of their names
  return format("events.out.tfevents.{:010}.{:06}.{}.{}", now / 1000000, now % 1000000, host, ::getpid());
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder, int64_t first_step)
    : path_((folder / file_name()).string()),
      file_(base::open_to_write(path_, "TensorBoard's event file", O_APPEND)) {
  write_event(0, message(kFileVersion, "brain.Event:2"));
  constexpr uint64_t kStart = 1;
  if (first_step > 0) {
    write_event(first_step, message(kSessionLog, key(kSessionStatus, kVarint) + varint(kStart)));
  }
}

void EventFile::add(int64_t step, const std::vector<std::pair<std::string, double>>& scalars) {
  std::string values;
  for (const auto& [tag, value] : scalars) values += scalar(tag, value);
  write_event(step, message(kSummary, values));
}

void EventFile::write_event(int64_t step, std::string_view payload) {
  using namespace std::chrono;
  const double now = duration<double>(system_clock::now().time_since_epoch()).count();
  const std::string event = key(kWallTime, kFixed64) + raw(now) + key(kStep, kVarint) +
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
                  (cut ? "" : ", half a record stays in it"),
              path_, "free disk space: the curves go on once there is some");
}

namespace {

constexpr const char* kCut = ".cut";

base::Descriptor open_file(const std::string& path) {
  return base::open_to_write(path, "the run's metrics");
}

// The bytes [from, to) of a file, passed on in pieces.
void copy(int file, const std::string& path, int64_t from, int64_t to, const base::ByteSink& sink) {
  std::string buffer(1 << 16, '\0');
  while (from < to) {
    const auto wanted = std::min<int64_t>(to - from, static_cast<int64_t>(buffer.size()));
    const auto got = ::pread(file, buffer.data(), static_cast<size_t>(wanted), from);
    if (got <= 0)
      throw Error(std::string("cannot read: ") + (got < 0 ? std::strerror(errno) : "it became shorter"), path,
                  "see to the file system");
    sink(buffer.data(), static_cast<size_t>(got));
    from += got;
  }
}

}  // namespace

std::string to_json(const MetricLine& line) {
  nlohmann::ordered_json json;  // prints a double's shortest form that reads back the same
  for (const auto& [name, value] : line) {
    std::visit([&, &key = name](const auto& v) { json[key] = v; }, value);
  }
  return base::as_line(json);
}

MetricsFile::MetricsFile(const std::filesystem::path& path, int64_t offset)
    : path_(path.string()), file_(open_file(path_)) {
  struct stat facts {};
  if (::fstat(file_.number(), &facts) != 0)
    throw Error(std::string("cannot write: ") + std::strerror(errno), path_, "see to the file system");
  offset_ = std::min<int64_t>(offset, facts.st_size);
  if (facts.st_size > offset_) keep_what_follows(facts.st_size);
  // where there are no locks, a job that was stopped in the middle of a line may still hold the file
  if (facts.st_size > 0) move_to(path);
}

// What an attempt before kept, and no checkpoint came after, stays in front.
void MetricsFile::keep_what_follows(int64_t size) const {
  const auto kept = path_ + kCut;
  std::optional<base::RegularFile> before;
  if (std::filesystem::exists(kept))
    before.emplace(kept, "the file of lines that were cut off",
                   "move it away, or start a new run (without --resume)");
  base::write_whole(kept, [&](const base::ByteSink& sink) {
    if (before) copy(before->number(), kept, 0, static_cast<int64_t>(before->size()), sink);
    copy(file_.number(), path_, offset_, size, sink);
  });
}

void MetricsFile::forget_cut() const {
  ::unlink((path_ + kCut).c_str());
}

void MetricsFile::move_to(const std::filesystem::path& path) {
  base::write_whole(path.string(),
                    [&](const base::ByteSink& sink) { copy(file_.number(), path_, 0, offset_, sink); });
  file_ = open_file(path.string());
  path_ = path.string();
}

void MetricsFile::add(const MetricLine& line) {
  const std::string text = to_json(line) + "\n";
  const ssize_t n = ::pwrite(file_.number(), text.data(), text.size(), offset_);
  if (n != static_cast<ssize_t>(text.size())) {
    const int reason = n < 0 ? errno : ENOSPC;
    // what a full disk took of a line is cut off: every line that stays is whole
    const bool cut = ::ftruncate(file_.number(), offset_) == 0;
    throw Error(std::string("cannot write: ") + std::strerror(reason) + (cut ? "" : ", the line stays half"),
                path_, "free disk space: lines are written again once there is some");
  }
  offset_ += n;
}

namespace {

using Clock = std::chrono::steady_clock;

void say_stand_still(Clock::duration slept, std::chrono::milliseconds beat) {
  if (slept < 4 * beat) return;
  log::warning(
      format("the process stood still for {:.0f} s: was the job suspended? The ranks' timeouts do "
             "not count that",
             std::chrono::duration<double>(slept).count()));
}

}  // namespace

Recorder::Recorder(std::shared_ptr<HeldFolder> folder, RunStatus status, int64_t metrics_offset,
                   std::chrono::milliseconds beat)
    : folder_(std::move(folder)),
      status_(std::move(status)),
      home_(folder_->path()),
      metrics_(std::make_unique<MetricsFile>(home_ / "metrics.jsonl", metrics_offset)),
      events_(std::make_unique<EventFile>(home_, status_.step)) {
  write_status(home_, status_, [this] { folder_->check(home_); });
  heart_ = std::thread([this, beat] { keep_beating(beat); });
}

Recorder::~Recorder() {
  {
    const std::lock_guard lock(over_mutex_);
    over_ = true;
  }
  over_changed_.notify_all();
  heart_.join();
}

void Recorder::keep_beating(std::chrono::milliseconds beat) {
  const auto pause = std::min<std::chrono::milliseconds>(beat / 5, std::chrono::seconds(1));
  std::unique_lock lock(over_mutex_);
  for (auto asleep = Clock::now();; asleep = Clock::now()) {
    if (over_changed_.wait_for(lock, pause, [this] { return over_; })) return;
    over_changed_.wait_for(lock, beat - pause, [this] { return over_ || wanted_; });
    if (over_) return;
    wanted_ = false;
    lock.unlock();
    say_stand_still(Clock::now() - asleep, beat);
    try {
      write();
    } catch (const FolderTaken&) {
      return;  // the trainer hears of it at its next note()
    }
    lock.lock();
  }
}

// The thread of its own asks whose the folder is: a log line opens no file.
void Recorder::add(const StepRecord& r) {
  folder_->refuse_if_taken();
  const std::lock_guard lock(files_);
  guarded([&] {
    metrics_->add({{"event", "step"},
                   {"step", r.step},
                   {"epoch", r.epoch},
                   {"loss", r.loss},
                   {"lr", r.lr},
                   {"samples_per_second", r.samples_per_second}});
  });
  guarded([&] {
    events_->add(
        r.step,
        {{"train/loss", r.loss}, {"train/lr", r.lr}, {"train/samples_per_second", r.samples_per_second}});
  });
}

void Recorder::add(const EpochRecord& r) {
  MetricLine line{{"event", "epoch"}, {"epoch", r.epoch}, {"step", r.step}, {"train_loss", r.train_loss}};
  std::vector<std::pair<std::string, double>> curves{{"epoch/train_loss", r.train_loss},
                                                     {"epoch/seconds", r.seconds}};
  for (const auto& [name, value] : r.metrics) {
    line.emplace_back(name == "loss" ? "eval_loss" : name, value);
    curves.emplace_back(r.curves + "/" + name, value);
  }
  line.emplace_back("seconds", r.seconds);
  line.emplace_back("samples_per_second", r.samples_per_second);
  folder_->refuse_if_taken();
  const std::lock_guard lock(files_);
  guarded([&] { metrics_->add(line); });
  guarded([&] { events_->add(r.step, curves); });
}

void Recorder::note(const std::function<void(RunStatus&)>& change) {
  folder_->refuse_if_taken();
  const std::lock_guard lock(status_mutex_);
  change(status_);
}

void Recorder::update(const std::function<void(RunStatus&)>& change) {
  note(change);
  write();
}

void Recorder::update_soon(const std::function<void(RunStatus&)>& change) {
  note(change);
  const std::lock_guard lock(over_mutex_);
  if (!std::exchange(wanted_, true)) over_changed_.notify_all();
}

void Recorder::write() {
  const std::lock_guard order(writing_);
  guarded([this] {
    const auto where = home();
    std::unique_lock lock(status_mutex_);
    const auto status = status_;
    lock.unlock();
    write_status(where, status, [&] { folder_->check(where); });
  });
}

void Recorder::saved(const std::string& checkpoint) {
  update([&](RunStatus& status) {
    status.checkpoint = "checkpoints/" + std::filesystem::path(checkpoint).filename().string();
    status.unsaved.clear();
  });
  const std::lock_guard lock(files_);
  metrics_->forget_cut();
}

void Recorder::not_saved(const std::string& reason) {
  note([&](RunStatus& status) { status.unsaved = reason; });
}

bool Recorder::holds(const std::string& checkpoint) {
  return std::filesystem::path(checkpoint).parent_path() == home() / "checkpoints";
}

void Recorder::last_word(const std::string& reason) noexcept {
  try {
    update([&](RunStatus& status) {
      status.state = RunState::failed;
      status.reason = reason;
    });
  } catch (const std::exception& error) {
    log::warning(describe(error));
  }
}

// Where to write now.
std::filesystem::path Recorder::home() {
  const std::lock_guard lock(files_);
  follow();
  return home_;
}

// The files go on in the successor of a folder that was removed.
void Recorder::follow() {
  const auto now = folder_->path();
  if (now == home_) return;
  metrics_->move_to(now / "metrics.jsonl");
  home_ = now;
  const std::lock_guard lock(status_mutex_);
  status_.checkpoint.clear();
  events_ = std::make_unique<EventFile>(home_, status_.step);
}

void Recorder::guarded(const std::function<void()>& write) {
  try {
    write();
  } catch (const FolderTaken&) {
    throw;
  } catch (const std::exception& error) {
    if (!warned_.exchange(true)) log::warning(describe(error) + "\nTraining goes on.");
  }
}

}  // namespace lockstep::run_folder
