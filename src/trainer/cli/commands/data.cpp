// lockstep data list|fetch|verify: the known data sets, on this disk and on their mirrors.
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/zip.h"
#include "lockstep/data/catalog.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using data::FileState;
using data::KnownSet;

struct DataArguments {
  std::vector<KnownSet> sets;
  std::string root;  // the folder of the one set; empty = data/NAME of each
  data::FetchOptions fetch;
};

bool exists(const std::string& path) {
  std::error_code none;
  return fs::exists(path, none);
}

// A file of the set, or one that is unpacked beside its archive.
std::string place_of(const KnownSet& set, const fs::path& name, const std::string& root) {
  return (fs::path(data::set_folder(set, root)) / name.filename()).string();
}

void print_file(const char* state, const std::string& path) {
  output::line(format("{:<8} {}", state, path));
}

[[noreturn]] void refuse_other_file(const std::string& path) {
  throw InputError("a different or damaged file of this name exists", path,
                   "move it away, then fetch again: fetch does not overwrite files");
}

void list_sets(const DataArguments& asked) {
  for (const auto& set : asked.sets) {
    double bytes = 0;
    size_t there = 0;
    for (const auto& file : set.files) {
      bytes += static_cast<double>(file.bytes);
      there += exists(place_of(set, file.name, asked.root));
    }
    output::line(format("{:<8} {:<44} {:>7.1f} MB  {} of {} files in {}", set.name, set.what, bytes / 1e6,
                        there, set.files.size(), data::set_folder(set, asked.root)));
    output::line(format("{:<8} from {}, license: {}", "", set.mirrors[0], set.licence));
  }
}

// Returns how many of the set's files are missing or damaged. Unpacked files are compared with the archive.
int verify_set(const KnownSet& set, const std::string& root) {
  static constexpr const char* kWords[] = {"ok", "missing", "damaged"};
  int bad = 0;
  for (const auto& file : set.files) {
    const auto path = place_of(set, file.name, root);
    const auto state = data::check_file(path, file);
    print_file(kWords[static_cast<int>(state)], path);
    bad += state != FileState::good;
  }
  if (bad > 0) return bad;
  for (const auto& member : set.packed) {
    const auto path = place_of(set, member, root);
    const bool good = checkpoint::is_unpacked(place_of(set, set.files[0].name, root), member, path);
    print_file(good ? "ok" : exists(path) ? "damaged" : "missing", path);
    bad += !good;
  }
  return bad;
}

// Of several sets those that were fetched.
void verify_sets(const DataArguments& asked) {
  int bad = 0;
  for (const auto& set : asked.sets) {
    const bool is_there = std::ranges::any_of(
        set.files, [&](const auto& file) { return exists(place_of(set, file.name, asked.root)); });
    if (is_there || asked.sets.size() == 1) bad += verify_set(set, asked.root);
  }
  if (bad > 0)
    throw InputError(format("{} missing or damaged", base::counted(bad, "file")), "",
                     "move damaged files away, then run lockstep data fetch" +
                         (asked.sets.size() == 1 ? " " + asked.sets[0].name : std::string()) +
                         (asked.root.empty() ? "" : " --root " + asked.root));
}

void fetch_set(const KnownSet& set, const DataArguments& asked) {
  for (const auto& file : set.files) {
    const auto path = place_of(set, file.name, asked.root);
    const auto state = data::check_file(path, file);
    if (state == FileState::damaged) refuse_other_file(path);
    std::error_code none;
    if (state == FileState::good) fs::remove(path + ".part", none);  // of an earlier try
    if (state == FileState::missing)
      data::fetch_file(set, file, data::set_folder(set, asked.root), asked.fetch);
    print_file(state == FileState::good ? "ok" : "fetched", path);
  }
  for (const auto& member : set.packed) {
    const auto archive = place_of(set, set.files[0].name, asked.root),
               path = place_of(set, member, asked.root);
    const bool good = checkpoint::is_unpacked(archive, member, path);
    if (!good && exists(path)) refuse_other_file(path);
    if (!good) checkpoint::unpack(archive, member, path);
    print_file(good ? "ok" : "unpacked", path);
  }
}

}  // namespace

int run_data(const std::vector<std::string>& args) {
  std::string action, set;
  DataArguments asked;
  Options options(
      "data", "lists, fetches and verifies the known data sets",
      {"lockstep data list", "lockstep data fetch mnist", "lockstep data verify pima --root my/data"});
  options.positional(
      "list|fetch|verify", action,
      "list the sets with sizes and sources, fetch missing files, or verify the files' SHA-256 digests");
  options.positional("SET", set, "one set; all of them if omitted", false);
  options.add("root", asked.root, "DIR", "the set's folder (default: data/SET)");
  options.add("mirror", asked.fetch.mirrors, "URL", "fetch from this URL instead; repeatable");
  if (!options.parse(args)) return kDone;
  asked.sets = set.empty() ? data::known_sets() : std::vector{data::known_set(set)};
  asked.fetch.progress = ::isatty(STDERR_FILENO) == 1;
  if (!asked.root.empty() && set.empty())
    throw InputError("--root needs a SET", "", "run lockstep data " + action + " mnist --root DIR");
  if (action == "list") {
    list_sets(asked);
  } else if (action == "verify") {
    verify_sets(asked);
  } else if (action == "fetch") {
    for (const auto& one : asked.sets) fetch_set(one, asked);
  } else {
    throw InputError(format("unknown action '{}'", base::printable(action)), "", "use list, fetch or verify");
  }
  return kDone;
}

}  // namespace lockstep::cli
