#include "course/workshop/folder.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/paths.h"

namespace lockstep::workshop {
namespace fs = std::filesystem;
namespace {

constexpr const char* kProgressFile = ".lockstep-workshop.json";
constexpr size_t kMostProgressBytes = 1 << 20;

std::map<std::string, ExerciseProgress> read_progress(const std::string& path) {
  std::map<std::string, ExerciseProgress> progress;
  const auto json = base::parse_json(base::read_small_file(path, kMostProgressBytes, "your progress"));
  try {
    for (const auto& [name, row] : json.get_ref<const nlohmann::json::object_t&>())
      progress[name] = {.tries = std::max(0, row.value("tries", 0)),
                        .hints = std::max(0, row.value("hints", 0)),
                        .saw_solution = row.value("saw_solution", false),
                        .solved = row.value("solved", ""),
                        .last = row.value("last", "")};
  } catch (const nlohmann::json::exception&) {
    throw InputError("the progress file cannot be read", path,
                     "remove this file, then run lockstep workshop init . to create it again");
  }
  return progress;
}

void write(const std::string& path, const std::string& text) {
  try {
    base::replace_file(path, text);
  } catch (const Error& error) {
    throw Error(error.what(), path, "check the disk and your quota (quota -s); you may remove build/");
  }
}

// Pages link to the docs, which are not copied: with whole paths instead.
void copy_page(const fs::path& from, const fs::path& to) {
  const std::string up = "](../",
                    home = "](" + fs::absolute(base::home_folder()).lexically_normal().string() + "/";
  auto text = base::read_text(from);
  for (size_t at = 0; (at = text.find(up, at)) != std::string::npos; at += home.size())
    text.replace(at, up.size(), home);
  write(to, text);
}

// All but the exercises and their masters.
void copy_pages(const fs::path& from, const fs::path& to) {
  for (fs::recursive_directory_iterator entry(from), end; entry != end; ++entry) {
    const auto place = to / fs::relative(entry->path(), from);
    const auto name = entry->path().filename();
    if (entry->is_directory() && (name == "masters" || name == "exercises")) {
      entry.disable_recursion_pending();
    } else if (entry->is_directory()) {
      fs::create_directories(place);
    } else if (!fs::exists(place)) {
      place.extension() == ".md" ? copy_page(*entry, place) : fs::copy(*entry, place);
      fs::permissions(place, fs::perms::owner_write, fs::perm_options::add);  // the install may be read-only
    }
  }
}

// Without the slash that "." leaves.
fs::path normal(const std::string& path) {
  const auto place = fs::absolute(path).lexically_normal();
  return place.has_filename() ? place : place.parent_path();
}

bool is_course(const fs::path& folder) {
  std::error_code none;
  return fs::exists(folder / kProgressFile, none);
}

// The course folder that `place` is in; empty where there is none.
fs::path course_around(fs::path place) {
  while (!is_course(place) && place.has_relative_path()) place = place.parent_path();
  return is_course(place) ? place : fs::path();
}

}  // namespace

Folder::Folder(std::string path) : path_(std::move(path)) {
  if (is_course(path_)) progress_ = read_progress(fs::path(path_) / kProgressFile);
}

Folder Folder::init(const std::string& path) {
  const auto place = normal(path);
  const auto around = course_around(place);
  if (!around.empty() && around != place)
    throw InputError("this folder is already in a course", around,
                     "continue there, or choose a folder outside it");
  try {
    fs::create_directories(place / "exercises");
    copy_pages(tutorials_folder(), place);
    Folder folder(place);
    for (const auto& exercise : exercises()) {
      const auto file = folder.file_of(exercise);
      if (!fs::exists(file)) write(file, exercise.task());
    }
    write(place / kProgressFile, folder.progress_json());
    return folder;
  } catch (const fs::filesystem_error& error) {
    throw InputError(format("cannot copy the course: {}", error.code().message()), path,
                     "choose a folder that you can write: lockstep workshop init my-course");
  }
}

Folder Folder::at(const std::string& path) {
  if (is_course(path)) return Folder(path);
  throw InputError("not a course folder", path, "make one with lockstep workshop init DIR");
}

Folder Folder::find(const std::string& from) {
  const auto around = course_around(normal(from));
  if (!around.empty()) return Folder(around);
  throw InputError("not in a course folder", normal(from),
                   "make one with lockstep workshop init DIR, then cd DIR");
}

std::string Folder::file_of(const Master& exercise) const {
  return fs::path(path_) / "exercises" / (exercise.name() + exercise.extension());
}

std::string Folder::build() const {
  return fs::path(path_) / "build";
}

ExerciseProgress Folder::progress_of(const std::string& exercise) const {
  const auto found = progress_.find(exercise);
  return found == progress_.end() ? ExerciseProgress{} : found->second;
}

void Folder::change(const std::string& exercise, const std::function<void(ExerciseProgress&)>& change) {
  const auto file = fs::path(path_) / kProgressFile;
  if (fs::exists(file)) progress_ = read_progress(file);
  change(progress_[exercise]);
  write(file, progress_json());
}

std::string Folder::progress_json() const {
  auto json = nlohmann::json::object();
  for (const auto& [name, row] : progress_)
    json[name] = {{"tries", row.tries},
                  {"hints", row.hints},
                  {"saw_solution", row.saw_solution},
                  {"solved", row.solved},
                  {"last", row.last}};
  return json.dump(1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string Folder::next_hint(const Master& exercise) {
  const auto& hints = exercise.hints();
  if (hints.empty()) return "there is no hint for this exercise";
  const auto most = static_cast<int>(hints.size());
  change(exercise.name(),
         [&](ExerciseProgress& progress) { progress.hints = std::min(progress.hints + 1, most); });
  const int count = progress_of(exercise.name()).hints;
  const auto hint = format("hint {} of {}: {}", count, most, hints[static_cast<size_t>(count) - 1]);
  return count < most ? hint
                      : format("{}\nThis was the last hint; lockstep check {} --solution shows a solution.",
                               hint, exercise.name());
}

std::string Folder::show_solution(const Master& exercise) {
  change(exercise.name(), [](ExerciseProgress& progress) {
    if (progress.solved.empty()) progress.saw_solution = true;  // whoever has solved it may compare
  });
  return exercise.solution();
}

std::string Folder::reset(const Master& exercise) const {
  const auto file = file_of(exercise);
  const bool had_one = fs::exists(file);
  if (had_one) fs::rename(file, file + ".old");
  write(file, exercise.task());
  const std::string old = fs::path(file).filename().string() + ".old";
  return format("{} is restored{}", file, had_one ? "; yours is now " + old : "");
}

}  // namespace lockstep::workshop
