#pragma once
// A part of a file in memory. Where the file becomes shorter, a read behind its new end would be a SIGBUS and
// the process's end: here it gives zeros, and whoever uses them asks whether that happened.

#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/base/descriptor.h"

namespace lockstep::base {

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

}  // namespace lockstep::base
