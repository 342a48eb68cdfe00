#include "trainer/run_folder/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "trainer/run_folder/crc32c.h"

namespace lockstep::run_folder {
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

}  // namespace lockstep::run_folder
