#pragma once
// Regular files: readers refuse pipes and devices, which could block.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "lockstep/base/descriptor.h"

namespace lockstep::base {

/// A regular file open for reading. A folder, a pipe, a device or an unreadable file is an InputError that
/// calls the file `what` and ends in `hint`.
class RegularFile {
 public:
  RegularFile(const std::string& path, const std::string& what, const std::string& hint = {});

  /// Its size in bytes when it was opened.
  size_t size() const { return size_; }
  /// The next bytes, at most `size` of them; 0 at the end.
  size_t read(void* into, size_t size);
  /// Bytes from `offset` on, independent of read(); fewer at the end.
  size_t read_at(size_t offset, void* into, size_t size) const;
  int number() const { return file_.number(); }

 private:
  [[noreturn]] void fail() const;

  std::string path_, what_, hint_;
  Descriptor file_;
  size_t size_ = 0;
};

/// A file of a run open for reading and writing, created if it does not exist; `flags` are open's. A folder,
/// a pipe, a device, a link (it may lead outside the run) or a file without permission is an InputError, a
/// full disk an Error.
Descriptor open_to_write(const std::string& path, const std::string& what, int flags = 0);

/// The text of a regular file of at most `limit` bytes; a larger one is an InputError too.
std::string read_small_file(const std::string& path, size_t limit, const std::string& what);

/// The whole of a file that this program wrote itself; InputError where it cannot be read.
std::string read_text(const std::string& path);

/// A part of a file in memory, mapped while this object lives. If the file becomes shorter meanwhile, a read
/// behind its new end (SIGBUS) ends the process with an error.
class FileMap {
 public:
  /// `protection` and `flags` are mmap's; `name` is what errors call the file.
  FileMap(int file, int64_t offset, size_t bytes, int protection, int flags, std::string name);
  ~FileMap();
  FileMap(FileMap&&) = delete;

  char* data() const { return static_cast<char*>(data_); }
  size_t size() const { return bytes_; }
  bool holds(const void* place) const { return place >= data_ && place < data() + bytes_; }
  void make_read_only() const;
  /// Error if the file is shorter now: the rest of its last page reads as zeros.
  void refuse_cut() const;

 private:
  std::string name_;
  Descriptor file_;  // of a map that is only read
  int64_t end_;      // in the file
  void* data_;
  size_t bytes_;
};

// First lines and fields of small files in /proc and /sys; empty if there is none.

inline std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// The rest of the first line that begins with `name`.
inline std::string field(const std::filesystem::path& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const auto begin = line.find_first_not_of(" \t:", name.size());
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

/// Identifies this process's namespace of a kind ("pid", "net") on its machine; 0 if unknown.
std::uint64_t own_namespace(const char* kind);

/// The number a text begins with.
inline std::optional<long long> number_in(const std::string& text) {
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  return end == text.c_str() ? std::nullopt : std::optional(value);
}

/// "configs/mnist.yaml" for "configs/mnits.yaml", "config/mnist.yaml" or "configs/mnist": the nearest name
/// where find_path() looks. Empty if there is none, or if the file exists.
std::string nearest_file(const std::string& path);

/// "did you mean configs/mnist.yaml? ", or "".
std::string did_you_mean_file(const std::string& path);

}  // namespace lockstep::base
