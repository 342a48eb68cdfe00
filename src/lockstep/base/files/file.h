#pragma once
// Regular files, opened and read whole: nothing that is no file is waited for.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "lockstep/base/descriptor.h"

namespace lockstep::base {

/// A regular file open for reading: the one way in for every reader. A folder, a pipe, a device or what
/// cannot be opened or read is an InputError that calls the file `what`, says where it is, and ends in
/// `hint`.
class RegularFile {
 public:
  RegularFile(const std::string& path, const std::string& what, const std::string& hint = {});

  /// Its size in bytes when it was opened.
  size_t size() const { return size_; }
  /// The next bytes, at most `size` of them; 0 at the end.
  size_t read(void* into, size_t size);
  /// Those from `offset` on, wherever read() stands; fewer at the end.
  size_t read_at(size_t offset, void* into, size_t size) const;
  int number() const { return file_.number(); }

 private:
  [[noreturn]] void fail() const;

  std::string path_, what_, hint_;
  Descriptor file_;
  size_t size_ = 0;
};

/// A file of ours open for reading and writing, made where there is none; `flags` are open's. A folder, a
/// pipe, a device, a link (it may lead to a file of the user's that is none of a run) or what may not be
/// written is an InputError, a want of room an Error.
Descriptor open_to_write(const std::string& path, const std::string& what, int flags = 0);

/// The text of a regular file of at most `limit` bytes; a larger one is an InputError too.
std::string read_small_file(const std::string& path, size_t limit, const std::string& what);

/// The whole of a file that this program wrote itself; InputError where it cannot be read.
std::string read_text(const std::string& path);

// A part of a file in memory. Where the file becomes shorter, a read behind its new end would be a SIGBUS and
// the process's end: here it gives zeros, and whoever uses them asks whether that happened.

struct MapSlot;

/// Mapped while this object lives.
class FileMap {
 public:
  /// `protection` and `flags` are mmap's; `name` is what errors call the file.
  FileMap(int file, int64_t offset, size_t bytes, int protection, int flags, std::string name);
  ~FileMap();
  FileMap(const FileMap&) = delete;
  FileMap& operator=(const FileMap&) = delete;

  char* data() const { return static_cast<char*>(data_); }
  size_t size() const { return bytes_; }
  bool holds(const void* place) const { return place >= data_ && place < data() + bytes_; }
  void make_read_only() const;
  /// Has a read met the end of a file that became shorter, or is it shorter now? A cut within a page is no
  /// signal.
  bool was_cut() const;
  /// Error where it has.
  void refuse_cut() const;

 private:
  std::string name_;
  Descriptor file_;  // of what is only read
  int64_t end_;      // in the file
  void* data_;
  size_t bytes_;
  MapSlot* slot_;  // null where too many are mapped to watch this one, too
};

/// The same for all that are mapped now; a question to the system for each that is only read.
void refuse_cut_files();

// What the kernel tells in small files: first lines and fields; empty where there is none.

inline std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// What stands behind the first line that begins with `name`.
inline std::string field(const std::filesystem::path& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const auto begin = line.find_first_not_of(" \t:", name.size());
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

/// The number a text begins with.
inline std::optional<long long> number_in(const std::string& text) {
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  return end == text.c_str() ? std::nullopt : std::optional(value);
}

// "Did you mean" for a file or folder that is not there.

/// "configs/mnist.yaml" for "configs/mnits.yaml", "config/mnist.yaml" or "configs/mnist": what lies near it,
/// where find_path() looks. Empty where nothing does, or something of that name is there.
std::string nearest_file(const std::string& path);

/// "did you mean configs/mnist.yaml? ", or "".
std::string did_you_mean_file(const std::string& path);

}  // namespace lockstep::base
