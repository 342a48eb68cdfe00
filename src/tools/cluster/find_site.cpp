// Where site files are looked for, and by which name.
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "tools/cluster/site.h"

namespace lockstep::cluster {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".yaml";
constexpr size_t kMaxBytes = 100'000;

bool is_path(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(kEnding);
}

Site read_site_file(const std::string& path) {
  return parse_site(base::read_small_file(path, kMaxBytes, "the site file"), path);
}

// unreadable folders hold nothing for us
std::vector<fs::path> files_of(const std::string& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == kEnding) files.push_back(entry->path());
  }
  return files;
}

std::string shipped_folder() {
  return (fs::path(base::home_folder()) / "job_scripts/sites").string();
}

// The file that ships and that this one came before; empty where it is that one, or there is none.
std::string hidden_by(const fs::path& path) {
  const auto shipped = fs::path(shipped_folder()) / path.filename();
  std::error_code none;
  return fs::exists(shipped, none) && !fs::equivalent(path, shipped, none) ? shipped.string() : "";
}

KnownSite known_site_at(const fs::path& path) {
  KnownSite known;
  known.name = path.stem().string();
  known.path = path.string();
  try {
    const auto site = read_site_file(known.path);
    known.about = site.about;
    known.scheduler = site.scheduler;
    known.hides = hidden_by(path);
  } catch (const InputError& error) {
    known.trouble = error.what();
    known.where = error.where();
  }
  return known;
}

void add_folder(std::vector<std::string>& folders, const char* base, const char* below) {
  if (base && *base) folders.push_back(*below ? (fs::path(base) / below).string() : base);
}

[[noreturn]] void unknown_site(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& known : known_sites()) names.push_back(known.name);
  const auto near = base::nearest(name, names);
  throw InputError(format("no site is called {}", base::printable(name)),
                   "looked for in " + base::join(site_folders(), ", "),
                   (near ? format("did you mean {}? ", *near) : "") + "known: " + base::join(names, ", ") +
                       "; or give the path of a file");
}

}  // namespace

std::vector<std::string> site_folders() {
  std::vector<std::string> folders;
  add_folder(folders, std::getenv("LOCKSTEP_SITES"), "");
  folders.emplace_back("sites");
  add_folder(folders, std::getenv("HOME"), ".config/lockstep/sites");
  if (!base::home_folder().empty()) folders.push_back(shipped_folder());
  return folders;
}

Site load_site(const std::string& name_or_path) {
  if (is_path(name_or_path)) return read_site_file(name_or_path);
  for (const auto& folder : site_folders()) {
    const auto path = fs::path(folder) / (name_or_path + kEnding);
    std::error_code error;
    if (name_or_path.empty() || !fs::exists(path, error)) continue;
    auto site = read_site_file(path.string());
    site.hides = hidden_by(path);
    return site;
  }
  unknown_site(name_or_path);
}

std::vector<KnownSite> known_sites() {
  std::vector<KnownSite> sites;
  for (const auto& folder : site_folders()) {
    for (const auto& path : files_of(folder)) {
      const auto same = [&](const KnownSite& site) { return site.name == path.stem().string(); };
      if (std::none_of(sites.begin(), sites.end(), same)) sites.push_back(known_site_at(path));
    }
  }
  std::sort(sites.begin(), sites.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return sites;
}

}  // namespace lockstep::cluster
