#pragma once
// The data sets that `lockstep data` knows: their files, digests and public mirrors. Adding one is a row in
// catalog.cpp.

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
  std::vector<std::string> mirrors;  // tried in this order; a file's name follows
  std::vector<KnownFile> files;
  std::vector<std::string> packed = {};  // what is taken out of the first file, an archive; it lies beside it
};

const std::vector<KnownSet>& known_sets();

/// Throws InputError naming the nearest set for a name that is not known.
const KnownSet& known_set(const std::string& name);

enum class FileState { good, missing, damaged };

/// Compares one file with its digest.
FileState check_file(const std::string& path, const KnownFile& known);

/// Where the set's files lie or belong: `root` where it is given, else data/NAME.
std::string set_folder(const KnownSet& set, const std::string& root);

// Downloads the files of a known set through the system's curl: resumed, from the first mirror that has them,
// checked.

struct FetchOptions {
  std::vector<std::string> mirrors = {};  // in place of the set's own
  bool progress = false;                  // curl's progress bar on stderr
};

/// Brings one file to folder/name. What an earlier try left in folder/name.part is continued; only a file
/// whose digest is right ever gets the name. Throws Error saying what each mirror answered.
void fetch_file(const KnownSet& set, const KnownFile& file, const std::string& folder,
                const FetchOptions& options);

// Where a set's files lie.

/// The first of `names` that exists under `root` or one of the folders where downloaders put it.
std::string find_data_file(const std::string& root, const std::vector<std::string>& names);

/// Copies the file into `folder`, a node-local one, unless a copy of this user's is there; returns the copy's
/// path. Its name holds a digest of the file's path, size and time, so files of one name never share a copy.
/// With an empty folder, or for a file that is in it: the path itself.
std::string stage_file(const std::string& path, const std::string& folder);

}  // namespace lockstep::data
