// lockstep data list|fetch|verify: the known data sets, on this disk and on their mirrors.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/readable.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/unzip.h"
#include "lockstep/data/catalog.h"
#include "lockstep/data/fetch.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {
namespace {

struct DataArguments {
  std::vector<data::KnownSet> sets;
  std::string root;
  data::FetchOptions fetch;
};

std::string path_of(const data::KnownSet& set, const data::KnownFile& file, const DataArguments& asked) {
  return (std::filesystem::path(data::set_folder(set, asked.root)) / file.name).string();
}

void print_line(const std::string& line) {
  std::printf("%s\n", base::readable(line).c_str());
}

int list_sets(const DataArguments& asked) {
  for (const auto& set : asked.sets) {
    double bytes = 0;
    size_t there = 0;
    for (const auto& file : set.files) {
      std::error_code none;
      bytes += static_cast<double>(file.bytes);
      there += std::filesystem::exists(path_of(set, file, asked), none);
    }
    print_line(format("{:<8} {:<44} {:>7.1f} MB  {} of {} files in {}", set.name, set.what, bytes / 1e6,
                      there, set.files.size(), data::set_folder(set, asked.root)));
    print_line(format("{:<8} from {}, licence: {}", "", set.mirrors[0], set.licence));
  }
  return kDone;
}

/// What is packed in the set's archive, and where it lies.
std::vector<std::pair<std::string, std::string>> packed(const data::KnownSet& set,
                                                        const DataArguments& asked) {
  std::vector<std::pair<std::string, std::string>> list;
  for (const auto& member : set.packed) {
    const auto name = std::filesystem::path(member).filename();
    list.emplace_back(member, (std::filesystem::path(data::set_folder(set, asked.root)) / name).string());
  }
  return list;
}

bool is_there(const data::KnownSet& set, const DataArguments& asked) {
  std::error_code none;
  return std::any_of(set.files.begin(), set.files.end(), [&](const data::KnownFile& file) {
    return std::filesystem::exists(path_of(set, file, asked), none);
  });
}

int verify_packed(const data::KnownSet& set, const DataArguments& asked) {
  int bad = 0;
  for (const auto& [member, path] : packed(set, asked)) {
    const bool good = checkpoint::is_unpacked(path_of(set, set.files[0], asked), member, path);
    std::error_code none;
    print_line(format("{:<8} {}",
                      good                                  ? "ok"
                      : std::filesystem::exists(path, none) ? "damaged"
                                                            : "missing",
                      path));
    bad += !good;
  }
  return bad;
}

int verify(const DataArguments& asked) {
  static constexpr const char* kWords[] = {"ok", "missing", "damaged"};
  int bad = 0;
  for (const auto& set : asked.sets) {
    if (asked.sets.size() > 1 && !is_there(set, asked)) continue;  // of all sets those that were fetched
    const int bad_before = bad;
    for (const auto& file : set.files) {
      const auto path = path_of(set, file, asked);
      const auto state = data::check_file(path, file);
      print_line(format("{:<8} {}", kWords[static_cast<int>(state)], path));
      bad += state != data::FileState::good;
    }
    if (bad == bad_before) bad += verify_packed(set, asked);
  }
  if (bad == 0) return kDone;
  throw InputError(format("{} file{} missing or damaged", bad, bad == 1 ? " is" : "s are"), "",
                   "lockstep data fetch brings them");
}

void unpack_set(const data::KnownSet& set, const DataArguments& asked) {
  for (const auto& [member, path] : packed(set, asked)) {
    const auto archive = path_of(set, set.files[0], asked);
    const bool good = checkpoint::is_unpacked(archive, member, path);
    std::error_code none;
    if (!good && std::filesystem::exists(path, none))
      throw InputError("there is another file of this name, or a damaged one", path,
                       "move it away, then fetch again: nothing is overwritten");
    if (!good) checkpoint::unpack(archive, member, path);
    print_line(format("{:<8} {}", good ? "ok" : "unpacked", path));
  }
}

int fetch(const DataArguments& asked) {
  for (const auto& set : asked.sets) {
    for (const auto& file : set.files) {
      const auto path = path_of(set, file, asked);
      const auto state = data::check_file(path, file);
      if (state == data::FileState::damaged) {
        throw InputError("there is another file of this name, or a damaged one", path,
                         "move it away, then fetch again: nothing is overwritten");
      }
      std::error_code none;
      if (state == data::FileState::good)
        std::filesystem::remove(path + ".part", none);  // nothing is left to go on with
      if (state == data::FileState::missing)
        data::fetch_file(set, file, data::set_folder(set, asked.root), asked.fetch);
      print_line(format("{:<8} {}", state == data::FileState::good ? "ok" : "fetched", path));
    }
    unpack_set(set, asked);
  }
  return kDone;
}

struct DataAction {
  const char* name;
  int (*run)(const DataArguments&);
};
constexpr DataAction kDataActions[] = {{"list", list_sets}, {"fetch", fetch}, {"verify", verify}};

}  // namespace

int run_data(const std::vector<std::string>& args) {
  std::string action, set;
  DataArguments asked;
  Options options(
      "data", "list, fetch and verify the known data sets",
      {"lockstep data list", "lockstep data fetch mnist", "lockstep data verify pima --root my/data"});
  options.positional("list|fetch|verify", action, "what to do");
  options.positional("SET", set, "one set; without it all of them", false);
  options.add("root", asked.root, "DIR", "the set's folder (default: data/SET)");
  options.add("mirror", asked.fetch.mirrors, "URL", "fetch from here instead; may be given again");
  if (!options.parse(args)) return kDone;
  asked.sets = set.empty() ? data::known_sets() : std::vector{data::known_set(set)};
  asked.fetch.progress = ::isatty(STDERR_FILENO) == 1;
  if (!asked.root.empty() && set.empty())
    throw InputError("--root needs a SET", "", "lockstep data " + action + " mnist --root DIR");
  for (const auto& row : kDataActions) {
    if (action == row.name) return row.run(asked);
  }
  throw InputError(format("data cannot '{}'", base::printable(action)), "",
                   "lockstep data list, fetch or verify");
}

}  // namespace lockstep::cli
