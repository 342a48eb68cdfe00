#pragma once
// The data sets that `lockstep data` knows: files, digests and public mirrors. Each is a row of catalog.cpp.

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::data {

struct KnownFile {
  std::string name;
  int64_t bytes;
  std::string sha256;
};

struct KnownSet {
  std::string name;
  std::string what;
  std::string licence;
  std::vector<std::string> mirrors;  // URLs, to which a file's name is appended, in the order to try
  std::vector<KnownFile> files;
  std::vector<std::string> packed = {};  // members of the first file, an archive, to unpack next to it
};

const std::vector<KnownSet>& known_sets();

/// Throws InputError with the nearest name if the name is unknown.
const KnownSet& known_set(const std::string& name);

enum class FileState { good, missing, damaged };

/// Whether the file has the digest.
FileState check_file(const std::string& path, const KnownFile& known);

/// The folder of the set's files: `root`, or data/NAME.
std::string set_folder(const KnownSet& set, const std::string& root);

struct FetchOptions {
  std::vector<std::string> mirrors = {};  // instead of the set's own
  bool progress = false;                  // curl's progress bar on stderr
  int stall_seconds = 60;                 // below 1,000 bytes per second before trying the next mirror
};

/// Downloads one file to folder/name with the system's curl, from the first mirror that has it. Resumes
/// folder/name.part, and renames it if its digest is right. Throws Error with each mirror's response.
void fetch_file(const KnownSet& set, const KnownFile& file, const std::string& folder,
                const FetchOptions& options);

/// The first of `names` that exists under `root` or in a folder that downloaders create there.
/// `set` is for the hint to fetch it.
std::string find_data_file(const std::string& root, const std::vector<std::string>& names,
                           const std::string& set);

/// Copies the file into `folder`, a node-local one, unless it has this user's copy; returns the copy's path.
/// The copy's name contains a digest of the file's path, size and time, so files with the same name never
/// share one. Returns `path` itself if `folder` is empty or contains the file.
std::string stage_file(const std::string& path, const std::string& folder);

}  // namespace lockstep::data
