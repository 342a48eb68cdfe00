#include "trainer/run_folder/metrics_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/json.h"

namespace lockstep::run_folder {
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

}  // namespace lockstep::run_folder
