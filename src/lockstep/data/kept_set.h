#pragma once
// A set kept in a file from run to run: whole or absent, and mapped by every process that reads it.

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/node_share.h"

namespace lockstep::data {

/// A file's content, told by its digest, or at once where nothing has touched the file since.
class OriginalFile {
 public:
  explicit OriginalFile(const std::string& path);
  const std::string& digest() const;
  /// Is it what state() described, in a file of this content? Reads the file only where it was touched.
  bool is(const std::string& state) const;
  /// Size, times and number of the file, and its digest. Error where it has changed since this object was
  /// made.
  std::string state() const;
  /// Is a file with these facts as trustworthy: the person's own, root's or the owner's of this one, and
  /// written by no other?
  bool is_trusted(const struct stat& facts) const;
  /// Of 0644 what the file's own rights allow: what it became tells as much.
  uint32_t rights() const;

 private:
  std::string path_, facts_;
  uint32_t owner_;
  mutable std::string digest_;
};

/// The set that keep_set() wrote for `key` from this origin; nothing where there is none, or the file is
/// damaged, not to be trusted, of another version or of something else.
std::optional<SharedSet> find_kept(const std::string& path, const std::string& key,
                                   const OriginalFile& origin);

/// The same on another rank of the node, which trusts what find_kept() looked at.
SharedSet map_kept(const std::string& path, const OriginalFile& origin);

/// Throws where it cannot be written. Two that write at once write one after the other, each a whole file.
void keep_set(const std::string& path, const std::string& key, const OriginalFile& origin,
              const SharedSet& set);

}  // namespace lockstep::data
