#pragma once
// Regular files, opened and read whole: nothing that is no file is waited for.

#include <cstddef>
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

}  // namespace lockstep::base
