#pragma once
// A file's tokens, kept from run to run in a safetensors file.

#include <sys/stat.h>

#include <optional>
#include <string>

#include "lockstep/tasks/tokenise.h"

namespace lockstep::tasks {

/// The file of texts that tokens are made from, as it is now.
class OriginalFile {
 public:
  explicit OriginalFile(const std::string& path);
  /// Its digest, size and times. Error if it has changed since this object was made.
  std::string state() const;
  /// Does `state` describe a file of this content? The file is read only if its size or times differ.
  bool is(const std::string& state) const;
  /// May this process believe a file with these facts: one of the user, of root or of the owner of the texts,
  /// which nobody else can write?
  bool trusts(const struct stat& facts) const;
  /// The permissions for a file of tokens: whoever may read the texts may read it.
  mode_t permissions() const;

 private:
  const std::string& digest() const;

  std::string path_, facts_;
  struct stat stat_;
  mutable std::string digest_;
};

/// What keep_tokens() wrote for `key`; nothing if there is no such file, or it is damaged, not trusted, or
/// made from something else.
std::optional<Tokenised> find_kept_tokens(const std::string& path, const std::string& key,
                                          const OriginalFile& origin);

/// Throws if the file cannot be written, or others could change it.
void keep_tokens(const std::string& path, const std::string& key, const OriginalFile& origin,
                 const Tokenised& made);

}  // namespace lockstep::tasks
