#pragma once
// Downloads the files of a known set through the system's curl: resumed, from the first mirror that has them,
// checked.

#include <string>

#include "lockstep/data/catalog.h"

namespace lockstep::data {

struct FetchOptions {
  std::vector<std::string> mirrors = {};  // in place of the set's own
  bool progress = false;                  // curl's progress bar on stderr
};

/// Brings one file to folder/name. What an earlier try left in folder/name.part is continued; only a file
/// whose digest is right ever gets the name. Throws Error saying what each mirror answered.
void fetch_file(const KnownSet& set, const KnownFile& file, const std::string& folder,
                const FetchOptions& options);

}  // namespace lockstep::data
