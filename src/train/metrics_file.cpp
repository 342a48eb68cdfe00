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
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  struct stat facts {};
  if (fd_ < 0 || ::fstat(fd_, &facts) != 0) {
    throw Error(std::string("cannot write: ") + std::strerror(errno), path_);
  }
  offset_ = std::min<int64_t>(offset, facts.st_size);
  if (::ftruncate(fd_, offset_) != 0) throw Error(std::string("cannot cut: ") + std::strerror(errno), path_);
}

MetricsFile::~MetricsFile() {
  if (fd_ >= 0) ::close(fd_);
}

void MetricsFile::add(const MetricLine& line) {
  const std::string text = to_json(line) + "\n";
  const ssize_t n = ::pwrite(fd_, text.data(), text.size(), offset_);
  // a line cut short by a full disk is written over by the next one
  if (n != static_cast<ssize_t>(text.size())) {
    throw Error(std::string("cannot write: ") + std::strerror(n < 0 ? errno : ENOSPC), path_);
  }
  offset_ += n;
}

}  // namespace lockstep::train
