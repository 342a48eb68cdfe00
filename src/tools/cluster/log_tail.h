#pragma once
// A job's log, read line by line while it grows.

#include <filesystem>
#include <functional>
#include <string>

namespace lockstep::cluster {

class LogTail {
 public:
  using Taker = std::function<void(const std::string& line)>;

  explicit LogTail(std::filesystem::path path) : path_(std::move(path)) {}

  /// Hands over each whole line that has come since; at the end the piece of one, too. A file that is not
  /// there, or cannot be read, has none.
  void pass_on(const Taker& to, bool at_end = false);
  bool has_spoken() const { return offset_ > 0; }
  size_t size() const { return offset_; }  // of what has been read
  const std::filesystem::path& path() const { return path_; }

 private:
  bool read_some();  // whether there may be more
  void hand_over(const Taker& to);

  std::filesystem::path path_;
  size_t offset_ = 0;
  std::string piece_;
};

}  // namespace lockstep::cluster
