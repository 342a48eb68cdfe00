#include "tools/known_sets/known_sets.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/checkpoint/zip.h"

namespace lockstep::known_sets {
namespace {

std::string path_of(const data::KnownSet& set, const data::KnownFile& file, const std::string& root) {
  return (std::filesystem::path(data::set_folder(set, root)) / file.name).string();
}

/// What is packed in the set's archive, and where it lies.
std::vector<std::pair<std::string, std::string>> packed(const data::KnownSet& set, const std::string& root) {
  std::vector<std::pair<std::string, std::string>> list;
  for (const auto& member : set.packed) {
    const auto name = std::filesystem::path(member).filename();
    list.emplace_back(member, (std::filesystem::path(data::set_folder(set, root)) / name).string());
  }
  return list;
}

bool is_there(const data::KnownSet& set, const std::string& root) {
  std::error_code none;
  return std::any_of(set.files.begin(), set.files.end(), [&](const data::KnownFile& file) {
    return std::filesystem::exists(path_of(set, file, root), none);
  });
}

[[noreturn]] void refuse_other_file(const std::string& path) {
  throw InputError("there is another file of this name, or a damaged one", path,
                   "move it away, then fetch again: nothing is overwritten");
}

int verify_packed(const data::KnownSet& set, const std::string& root) {
  int bad = 0;
  for (const auto& [member, path] : packed(set, root)) {
    const bool good = checkpoint::is_unpacked(path_of(set, set.files[0], root), member, path);
    std::error_code none;
    output::line(format("{:<8} {}",
                        good                                  ? "ok"
                        : std::filesystem::exists(path, none) ? "damaged"
                                                              : "missing",
                        path));
    bad += !good;
  }
  return bad;
}

void unpack_set(const data::KnownSet& set, const std::string& root) {
  for (const auto& [member, path] : packed(set, root)) {
    const auto archive = path_of(set, set.files[0], root);
    const bool good = checkpoint::is_unpacked(archive, member, path);
    std::error_code none;
    if (!good && std::filesystem::exists(path, none)) refuse_other_file(path);
    if (!good) checkpoint::unpack(archive, member, path);
    output::line(format("{:<8} {}", good ? "ok" : "unpacked", path));
  }
}

}  // namespace

void list(const std::vector<data::KnownSet>& sets, const std::string& root) {
  for (const auto& set : sets) {
    double bytes = 0;
    size_t there = 0;
    for (const auto& file : set.files) {
      std::error_code none;
      bytes += static_cast<double>(file.bytes);
      there += std::filesystem::exists(path_of(set, file, root), none);
    }
    output::line(format("{:<8} {:<44} {:>7.1f} MB  {} of {} files in {}", set.name, set.what, bytes / 1e6,
                        there, set.files.size(), data::set_folder(set, root)));
    output::line(format("{:<8} from {}, licence: {}", "", set.mirrors[0], set.licence));
  }
}

void verify(const std::vector<data::KnownSet>& sets, const std::string& root) {
  static constexpr const char* kWords[] = {"ok", "missing", "damaged"};
  int bad = 0;
  for (const auto& set : sets) {
    if (sets.size() > 1 && !is_there(set, root)) continue;  // of all sets those that were fetched
    const int bad_before = bad;
    for (const auto& file : set.files) {
      const auto path = path_of(set, file, root);
      const auto state = data::check_file(path, file);
      output::line(format("{:<8} {}", kWords[static_cast<int>(state)], path));
      bad += state != data::FileState::good;
    }
    if (bad == bad_before) bad += verify_packed(set, root);
  }
  if (bad == 0) return;
  throw InputError(format("{} file{} missing or damaged", bad, bad == 1 ? " is" : "s are"), "",
                   "lockstep data fetch brings them");
}

void fetch(const std::vector<data::KnownSet>& sets, const std::string& root,
           const data::FetchOptions& options) {
  for (const auto& set : sets) {
    for (const auto& file : set.files) {
      const auto path = path_of(set, file, root);
      const auto state = data::check_file(path, file);
      if (state == data::FileState::damaged) refuse_other_file(path);
      std::error_code none;
      if (state == data::FileState::good)
        std::filesystem::remove(path + ".part", none);  // nothing is left to go on with
      if (state == data::FileState::missing)
        data::fetch_file(set, file, data::set_folder(set, root), options);
      output::line(format("{:<8} {}", state == data::FileState::good ? "ok" : "fetched", path));
    }
    unpack_set(set, root);
  }
}

}  // namespace lockstep::known_sets
