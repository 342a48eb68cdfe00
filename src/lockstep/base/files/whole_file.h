#pragma once
// Files written whole or not at all.

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <string>

#include "lockstep/base/descriptor.h"

namespace lockstep::base {

/// Takes bytes in order; throws if they cannot be written.
using ByteSink = std::function<void(const void* data, size_t size)>;

/// Calls write(sink) on a temporary file beside `path`, then fsync, ready(), rename, fsync of the folder. If
/// anything throws, the temporary file is removed and what was at `path` is untouched. `mode` is open's.
void write_whole(const std::string& path, const std::function<void(const ByteSink&)>& write,
                 const std::function<void()>& ready = {}, mode_t mode = 0644);

/// The same for a text.
void replace_file(const std::string& path, const std::string& text);

/// Is it one of write_whole's temporary files?
bool is_leftover(const std::string& filename);

/// The same for an output file: follows links of this user and of root, and writes to a pipe, a device or our
/// own standard output without replacing it. Errors end in `hint`.
void write_output(const std::string& path, const std::string& text, const std::string& hint);

/// InputError if write_output() would fail: no folder for the file, a folder of that name, or no permission.
/// Errors end in `hint`.
void check_output(const std::string& path, const std::string& hint);

/// A new temporary file like write_whole's: `.NAME.PID-RANDOM.partial`.
Descriptor make_partial(const std::string& path, std::string& temporary, mode_t mode = 0600);

/// Removes the temporary files for `path` that nobody has written to for ten minutes.
void remove_stale_partials(const std::string& path);

/// Removes all temporary files of write_whole from a folder. The caller must be the only writer there.
void remove_leftovers(const std::string& folder);

// Folders written whole or not at all.

/// InputError if write_whole_folder() would fail: `path` exists and is not an empty folder, or its parent
/// does not exist. Errors end in `hint`.
void check_new_folder(const std::string& path, const std::string& hint);

/// Calls write(folder) for a new folder beside `path`, and then renames it to `path`. If anything throws, it
/// is removed.
void write_whole_folder(const std::string& path, const std::string& hint,
                        const std::function<void(const std::string& folder)>& write);

/// A folder that is removed with this object.
class TemporaryFolder {
 public:
  /// Under TMPDIR, or /tmp.
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(TemporaryFolder&&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace lockstep::base
