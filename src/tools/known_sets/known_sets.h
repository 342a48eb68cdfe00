#pragma once
// The known data sets on this disk: what is here, brought, and compared with its digests. A line is printed
// for each file.

#include <string>
#include <vector>

#include "lockstep/data/catalog.h"

namespace lockstep::known_sets {

/// `root`: the folder of the one set; empty = data/NAME of each.
void list(const std::vector<data::KnownSet>& sets, const std::string& root);

/// InputError where a file is missing or damaged. Of several sets those that were fetched.
void verify(const std::vector<data::KnownSet>& sets, const std::string& root);

/// Brings what is missing and unpacks it. Nothing is overwritten: InputError for another file of that name.
void fetch(const std::vector<data::KnownSet>& sets, const std::string& root,
           const data::FetchOptions& options);

}  // namespace lockstep::known_sets
