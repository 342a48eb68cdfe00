// lockstep data list|fetch|verify: the known data sets, on this disk and on their mirrors. lockstep data
// pack: a set in one file.
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/zip.h"
#include "lockstep/data/catalog.h"
#include "lockstep/launch/identify.h"
#include "lockstep/tasks/packed.h"
#include "lockstep/tasks/task.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/failure.h"
#include "trainer/cli/options.h"
#include "trainer/config/config_text.h"
#include "trainer/config/load.h"

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

constexpr const char* kListHelp = "shows the known data sets, and which of their files you have";
constexpr const char* kFetchHelp = "downloads the missing files of the known data sets";
constexpr const char* kVerifyHelp = "compares the files with their SHA-256 digests";
constexpr const char* kPackHelp = "packs a config's folder of images, texts or table into one file";

int run_on_sets(const std::string& action, const char* help, const std::vector<std::string>& args) {
  std::string set;
  DataArguments asked;
  Options options("data " + action, help, {format("lockstep data {} mnist", action)});
  options.positional("SET", set, "one set; all of them if omitted", false);
  options.add("root", asked.root, "DIR", "the set's folder (default: data/SET)");
  if (action == "fetch")
    options.add("mirror", asked.fetch.mirrors, "URL", "fetch from this URL instead; repeatable");
  if (!options.parse(args)) return kDone;
  asked.sets = set.empty() ? data::known_sets() : std::vector{data::known_set(set)};
  asked.fetch.progress = ::isatty(STDERR_FILENO) == 1;
  if (!asked.root.empty() && set.empty())
    throw InputError("--root needs a SET", "", "run lockstep data " + action + " mnist --root DIR");
  if (action == "list") list_sets(asked);
  if (action == "verify") verify_sets(asked);
  for (size_t i = 0; action == "fetch" && i < asked.sets.size(); ++i) fetch_set(asked.sets[i], asked);
  return kDone;
}

// The samples of a config's task in one file.
int pack_set(const std::vector<std::string>& args) {
  std::string config, out;
  std::vector<std::string> sets;
  Options options("data pack", kPackHelp,
                  {"lockstep data pack configs/folder.yaml --set data.root=shapes --out shapes.zip"});
  options.positional("CONFIG.yaml", config, "the config; only its sections task, data and model are used");
  options.add("out", out, "FILE", "the file to write");
  options.add("set", sets, "KEY=VALUE", "override a key; repeatable");
  if (!options.parse(args)) return kDone;
  if (out.empty()) throw UsageError("--out is missing", "lockstep data pack", "name the file to write");
  const auto text = config::read_config_text(config);
  const auto settings =
      config::load_settings(text.text, text.name, sets, launch::current_environment()).settings;
  const auto task = make_task(settings.for_task());
  auto* const packable = dynamic_cast<tasks::PackableTask*>(task.get());
  const auto ending = packable ? packable->packed_ending() : "";
  if (ending.empty())
    throw InputError(format("the set of task {} cannot be packed", settings.task.name), "task.name",
                     "choose the task csv, text or folder");
  if (!out.ends_with(ending))
    throw InputError("the output's name has another ending", out, "name a file that ends in " + ending);
  if (std::error_code none; fs::exists(fs::symlink_status(out, none)))
    throw InputError("the file exists", out, kChooseOutHint);
  base::check_output(out, kChooseOutHint);
  base::remove_stale_partials(out);  // of an earlier try that was killed
  int64_t samples = 0;
  try {
    samples = packable->pack(settings.for_task(), out);
  } catch (const Error& error) {
    if (!base::is_leftover(fs::path(error.where()).filename())) throw;  // not about writing
    throw InputError(error.what(), out, "free disk space, or choose another place with --out");
  }
  output::line(format("packed {} samples in {}, {:.1f} MB", samples, out,
                      static_cast<double>(fs::file_size(out)) / 1e6));
  return kDone;
}

}  // namespace

int run_data(const std::vector<std::string>& args) {
  static const CommandGroup group = {
      .name = "data",
      .summary = "lists, fetches and verifies the known data sets, or packs yours",
      .kind = "action",
      .kinds = "actions",
      .word = "ACTION",
      .examples = {"lockstep data list", "lockstep data fetch mnist",
                   "lockstep data verify pima --root my/data",
                   "lockstep data pack configs/folder.yaml --set data.root=shapes --out shapes.zip"},
      .members = {
          {"list", kListHelp, [](const auto& words) { return run_on_sets("list", kListHelp, words); }},
          {"fetch", kFetchHelp, [](const auto& words) { return run_on_sets("fetch", kFetchHelp, words); }},
          {"verify", kVerifyHelp,
           [](const auto& words) { return run_on_sets("verify", kVerifyHelp, words); }},
          {"pack", kPackHelp, pack_set}}};
  return run_group(group, args);
}

}  // namespace lockstep::cli
