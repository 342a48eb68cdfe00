#include "train/metrics_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace lockstep::train {

std::string to_json(const MetricLine& line) {
  nlohmann::ordered_json json;  // prints a double's shortest form that reads back the same
  for (const auto& [name, value] : line) {
    std::visit([&, &key = name](const auto& v) { json[key] = v; }, value);
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

MetricsFile::MetricsFile(const std::filesystem::path& path, int64_t offset) : path_(path.string()) {
  file_ = Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  struct stat facts {};
  if (!file_ || ::fstat(file_.number(), &facts) != 0) {
    throw Error(std::string("cannot write: ") + std::strerror(errno), path_,
                "make room, or set run.dir to a folder that can be written");
  }
  offset_ = std::min<int64_t>(offset, facts.st_size);
  if (::ftruncate(file_.number(), offset_) != 0)
    throw Error(std::string("cannot cut: ") + std::strerror(errno), path_,
                "set run.dir to a file system where files can become shorter, or start a new run");
}

void MetricsFile::add(const MetricLine& line) {
  const std::string text = to_json(line) + "\n";
  const ssize_t n = ::pwrite(file_.number(), text.data(), text.size(), offset_);
  if (n != static_cast<ssize_t>(text.size())) {
    const int reason = n < 0 ? errno : ENOSPC;
    // what a full disk took of a line is cut off: every line that stays is whole
    const bool cut = ::ftruncate(file_.number(), offset_) == 0;
    throw Error(std::string("cannot write: ") + std::strerror(reason) + (cut ? "" : ", the line stays half"),
                path_, "make room: lines are written again once there is some");
  }
  offset_ += n;
}

}  // namespace lockstep::train
