#include "course/workshop/course.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace fs = std::filesystem;
namespace {

// the exercise under the workshop's own name stands at its chapter's end
constexpr const char* kOwnName = "distributed_data_parallel";
constexpr const char* kItsChapter = "ddp";

std::string word_of(const std::string& name) {
  return name == kOwnName ? kItsChapter : name.substr(0, name.find('.'));
}

auto find_chapter(const Master& exercise) {
  const auto& table = chapters();
  return std::find_if(table.begin(), table.end(),
                      [&](const Chapter& row) { return row.word == word_of(exercise.name()); });
}

const std::set<std::string>& kinds() {
  static const std::set<std::string> extensions = {".cpp", ".yaml", ".pbs", ".slurm", ".sh"};
  return extensions;
}

// a page may lie beside them
bool is_master(const fs::path& file) {
  return kinds().count(file.extension()) > 0;
}

// exercises/groups.1.cpp is groups.1, and so is groups.1, whose .1 is no extension
std::string name_of(const std::string& word) {
  const auto file = fs::path(word).filename();
  if (file.empty()) return word;
  return kinds().count(file.extension()) > 0 ? file.stem() : file;
}

// where an exercise is in the course: chapter, then the number behind the point
auto place_of(const Master& exercise) {
  const auto& name = exercise.name();
  return std::tuple(find_chapter(exercise) - chapters().begin(), name == kOwnName, name.size(), name);
}

}  // namespace

const std::vector<Chapter>& chapters() {
  static const std::vector<Chapter> table = {
      {1, "start", "What distributed training is; your first job"},
      {2, "devices", "One process, many devices"},
      {3, "groups", "Process groups"},
      {4, "allreduce", "All-reduce"},
      {5, "sampler", "Sharing the data"},
      {6, "ddp", "DistributedDataParallel"},
      {7, "overlap", "Overlap and buckets"},
      {8, "resume", "Checkpoints, time limits, requeue"},
      {9, "scale", "More than one node, and other ways to share the work"},
      {10, "compare", "DP against DDP"},
      {11, "beyond", "Text, and learning by acting"},
  };
  return table;
}

std::string tutorials_folder() {
  const auto folder = fs::path(base::home_folder()) / "tutorials";
  std::error_code none;
  if (fs::is_directory(folder / "masters", none)) return folder;
  throw InputError("the course is not there", folder,
                   "set LOCKSTEP_HOME to lockstep's source tree or its installed share folder");
}

const Chapter& chapter_of(const Master& exercise) {
  static const Chapter none{0, "", "Beside the chapters"};
  const auto found = find_chapter(exercise);
  return found == chapters().end() ? none : *found;
}

std::vector<Master> exercises() {
  std::vector<Master> found;
  for (const auto& entry : fs::directory_iterator(fs::path(tutorials_folder()) / "masters")) {
    if (is_master(entry.path())) found.push_back(Master::read(entry.path()));
  }
  std::sort(found.begin(), found.end(),
            [](const Master& a, const Master& b) { return place_of(a) < place_of(b); });
  return found;
}

Master find_exercise(const std::string& word) {
  const auto name = name_of(word);
  std::vector<std::string> names;
  for (auto& exercise : exercises()) {
    if (exercise.name() == name) return exercise;
    names.push_back(exercise.name());
  }
  const auto meant = base::nearest(name, names);
  throw InputError(format("there is no exercise '{}'", base::printable(word)), "",
                   meant ? format("did you mean {}?", *meant) : "lockstep check lists them all");
}

}  // namespace lockstep::workshop
