#include "lockstep/base/files/nearest_file.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"

namespace lockstep::base {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostEntries = 2000;  // a folder of images is not searched for a typing error

bool lies_there(const fs::path& path) {
  std::error_code failed;
  return fs::status(path, failed).type() !=
         fs::file_type::not_found;  // what may not be looked at may be there
}

std::vector<fs::path> entries_in(const fs::path& folder) {
  std::vector<fs::path> names;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed); !failed && at != fs::directory_iterator();
       at.increment(failed)) {
    if (names.size() == kMostEntries) return {};
    names.push_back(at->path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// A letter wrong before the same extension, or another extension: of "a.yaml" "b.yaml" is no slip.
fs::path near_name(const fs::path& folder, const fs::path& name) {
  const auto names = entries_in(folder);
  std::vector<std::string> stems;
  for (const auto& other : names) {
    if (other.extension() == name.extension()) stems.push_back(other.stem().string());
  }
  if (const auto near = nearest(name.stem().string(), stems)) return *near + name.extension().string();
  const auto same_stem = std::find_if(names.begin(), names.end(),
                                      [&](const auto& other) { return other.stem() == name.stem(); });
  return same_stem == names.end() ? fs::path() : *same_stem;
}

// The folder, or the one that was meant.
fs::path folder_for(const fs::path& folder) {
  if (folder.empty() || lies_there(find_path(folder.string()))) return folder;
  return nearest_file(folder.string());
}

}  // namespace

std::string nearest_file(const std::string& path) {
  const fs::path wanted(path);
  const auto name = wanted.filename();
  if (name.empty() || path.size() > kLongestPath || path.find('\0') != path.npos ||
      lies_there(find_path(path)))
    return "";
  const auto folder = folder_for(wanted.parent_path());
  if (folder.empty() && wanted.has_parent_path()) return "";
  if (folder != wanted.parent_path() && lies_there(find_path((folder / name).string()))) return folder / name;
  for (const auto& place : {"." / folder, home_folder() / folder}) {
    const auto near = near_name(place, name);
    if (!near.empty()) return folder / near;
  }
  return "";
}

std::string did_you_mean_file(const std::string& path) {
  const auto near = nearest_file(path);
  return near.empty() ? "" : format("did you mean {}? ", printable(near, kLongestPath));
}

}  // namespace lockstep::base
