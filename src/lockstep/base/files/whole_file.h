#pragma once
// Files written whole or not at all.

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <string>

#include "lockstep/base/descriptor.h"

namespace lockstep::base {

/// Takes bytes in order and throws where it can't.
using ByteSink = std::function<void(const void* data, size_t size)>;

/// Calls write(sink) on a temporary file beside `path`, then fsync, ready(), rename, fsync of the folder. If
/// anything throws, the temporary file is removed and what was at `path` is untouched. `mode` is open's.
void write_whole(const std::string& path, const std::function<void(const ByteSink&)>& write,
                 const std::function<void()>& ready = {}, mode_t mode = 0644);

/// The same for a text at hand.
void replace_file(const std::string& path, const std::string& text);

/// Is it one of write_whole's temporary files?
bool is_leftover(const std::string& filename);

/// The same for a file that a person named: links of that person's and root's are followed, and a pipe, a
/// device or our own standard output is written through, never replaced. Errors end in `hint`.
void write_output(const std::string& path, const std::string& text, const std::string& hint);

/// The same for a file that nobody named, which stands where we put it: whatever is in its place is replaced,
/// a link as well.
void write_own_output(const std::string& path, const std::string& text, const std::string& hint);

/// InputError, before the work, where write_output() would fail after it: no folder for the file, a folder in
/// its place, or no right to write. Errors end in `hint`.
void check_output(const std::string& path, const std::string& hint);

/// A temporary file of write_whole's kind, held for as long as the descriptor lives: `.NAME.XXXXXX.partial`.
Descriptor make_partial(const std::string& path, std::string& temporary);

/// Removes the temporary files for `path` that no living writer holds. Those of the last minute stay.
void remove_dead_partials(const std::string& path);

/// Removes what killed writers left in a folder: write_whole's temporary files. Only for who alone writes
/// there.
void remove_leftovers(const std::string& folder);

// Folders written whole or not at all.

/// InputError, before the work, where write_whole_folder() could not put a folder: something is at `path`
/// that is no empty folder, or there is none to put it in. Errors end in `hint`.
void check_new_folder(const std::string& path, const std::string& hint);

/// Calls write(folder) for a new folder beside `path`, which becomes `path` when all is there. If anything
/// throws, it is removed and nothing is at `path`.
void write_whole_folder(const std::string& path, const std::string& hint,
                        const std::function<void(const std::string& folder)>& write);

// A folder that is gone with its owner.

class TemporaryFolder {
 public:
  /// Under TMPDIR, or /tmp; an Error where it cannot be made.
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace lockstep::base
