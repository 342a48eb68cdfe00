#include "course/workshop/folder.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "course/workshop/check_slot.h"
#include "course/workshop/master.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/paths.h"

namespace lockstep::workshop {
namespace fs = std::filesystem;
namespace {

bool is_folder(const fs::path& path) {
  std::error_code none;
  return fs::symlink_status(path, none).type() == fs::file_type::directory;
}

void open_all(const fs::path& folder) {
  open_folder(folder);
  std::error_code closed;
  for (fs::directory_iterator entry(folder, closed), end; !closed && entry != end; entry.increment(closed)) {
    if (is_folder(entry->path())) open_all(entry->path());
  }
}

}  // namespace

void open_folder(const std::string& folder) {
  std::error_code not_ours;
  if (is_folder(folder)) fs::permissions(folder, fs::perms::owner_all, fs::perm_options::add, not_ours);
}

void make_empty(const std::string& folder) {
  std::error_code failed;
  fs::remove_all(folder, failed);
  if (failed) {
    open_all(folder);
    fs::remove_all(folder, failed);
  }
  if (!failed) fs::create_directories(folder, failed);
  if (failed)
    throw InputError(
        format("the folder in which your program is to run cannot be emptied: {}", failed.message()), folder,
        "remove it by hand, then check again");
}

namespace {

constexpr const char* kMark = ".lockstep-workshop.json";  // in a learner's folder: how far they have come
constexpr size_t kMostProgressBytes = 1 << 20;

[[noreturn]] void refuse_progress(const std::string& path) {
  throw InputError(
      "how far you have come is not readable", path,
      "remove this file, then lockstep workshop init . and lockstep check EXERCISE make it again");
}

std::map<std::string, ExerciseProgress> read_progress(const std::string& path) {
  const auto text = base::read_small_file(path, kMostProgressBytes, "how far you have come");
  const auto json = base::parse_json(text);
  if (!json.is_object()) refuse_progress(path);
  std::map<std::string, ExerciseProgress> progress;
  try {
    for (const auto& [name, row] : json.items()) {
      progress[name] = {.tries = std::max(0, row.value("tries", 0)),
                        .hints = std::max(0, row.value("hints", 0)),
                        .saw_solution = row.value("saw_solution", false),
                        .solved = row.value("solved", ""),
                        .last = row.value("last", "")};
    }
  } catch (const nlohmann::json::exception&) {
    refuse_progress(path);
  }
  return progress;
}

void write(const std::string& path, const std::string& text) {
  try {
    base::replace_file(path, text);
  } catch (const Error& error) {
    throw Error(error.what(), path, "is the disk full, or your quota (quota -s)? build/ may be removed");
  }
}

void copy_missing(const fs::path& from, const fs::path& to) {
  if (!fs::exists(to)) fs::copy_file(from, to);
  fs::permissions(to, fs::perms::owner_write, fs::perm_options::add);  // the install may be read-only
}

// its links to the docs lead on from wherever the copy lies
void copy_page(const fs::path& from, const fs::path& to) {
  const std::string up = "](../",
                    home = "](" + fs::absolute(base::home_folder()).lexically_normal().string() + "/";
  auto text = base::read_text(from);
  for (size_t at = 0; (at = text.find(up, at)) != std::string::npos; at += home.size())
    text.replace(at, up.size(), home);
  if (!fs::exists(to)) write(to, text);
}

// a master, or what is made of one
bool is_of_an_exercise(const fs::path& path) {
  const auto& folder = *path.begin();
  return folder == "masters" ||
         (folder == "exercises" && path.has_parent_path() && path.extension() != ".md");
}

void copy_pages(const fs::path& from, const fs::path& to) {
  for (const auto& entry : fs::recursive_directory_iterator(from)) {
    const auto place = to / fs::relative(entry.path(), from);
    if (is_of_an_exercise(fs::relative(entry.path(), from))) continue;
    if (entry.is_directory()) fs::create_directories(place);
    if (entry.is_regular_file()) (place.extension() == ".md" ? copy_page : copy_missing)(entry.path(), place);
  }
}

// without the slash that "." leaves
fs::path whole(const std::string& path) {
  const auto place = fs::absolute(path).lexically_normal();
  return place.has_filename() ? place : place.parent_path();
}

bool is_course(const fs::path& folder) {
  std::error_code none;
  return fs::exists(folder / kMark, none);
}

// a course inside another would be taken for it by whoever stands between the two
void require_outside_courses(const fs::path& place) {
  if (is_course(place)) return;
  for (auto above = place; above.has_relative_path(); above = above.parent_path()) {
    if (is_course(above.parent_path()))
      throw InputError("you are in a course already", above.parent_path(),
                       "go on there, or choose a folder outside it");
  }
}

// a copy there would be copied again, and so on
void require_outside_of_the_course(const std::string& path) {
  const auto course = fs::weakly_canonical(tutorials_folder()),
             own = fs::weakly_canonical(fs::absolute(path));
  if (std::mismatch(course.begin(), course.end(), own.begin(), own.end()).first != course.end()) return;
  throw InputError("this folder lies in the course that is to be copied", path,
                   "choose a folder outside it: lockstep workshop init ~/my-course");
}

}  // namespace

Folder::Folder(std::string path) : path_(std::move(path)) {
  const auto mark = fs::path(path_) / kMark;
  if (fs::exists(mark)) progress_ = read_progress(mark);
}

Folder Folder::init(const std::string& path) {
  try {
    const auto place = whole(path);
    require_outside_courses(place);
    require_outside_of_the_course(path);
    fs::create_directories(place / "exercises");
    copy_pages(tutorials_folder(), place);
    Folder folder(place);
    for (const auto& exercise : exercises()) {
      const auto file = folder.file_of(exercise);
      if (!fs::exists(file)) write(file, exercise.task());
    }
    folder.save();
    return folder;
  } catch (const fs::filesystem_error& error) {
    throw InputError(format("the course cannot be copied: {}", error.code().message()), path,
                     "choose a folder of your own: lockstep workshop init my-course");
  }
}

Folder Folder::at(const std::string& path) {
  if (fs::exists(fs::path(path) / kMark)) return Folder(path);
  throw InputError("this is no course folder", path, "make one with lockstep workshop init DIR");
}

Folder Folder::find(const std::string& from) {
  for (auto folder = whole(from);; folder = folder.parent_path()) {
    if (is_course(folder)) return Folder(folder);
    if (!folder.has_relative_path()) break;
  }
  throw InputError("this is no course folder, and lies in none", fs::absolute(from).lexically_normal(),
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
  // not the check's lock, which is held for as long as a check lasts
  std::error_code none;
  fs::create_directories(build(), none);
  const auto alone = take_folder(build() + "/.noting", [](const std::string&) {});
  const auto mark = fs::path(path_) / kMark;
  if (fs::exists(mark)) progress_ = read_progress(mark);
  change(progress_[exercise]);
  save();
}

std::string Folder::reset(const Master& exercise) const {
  auto file = file_of(exercise);
  if (fs::exists(file)) fs::rename(file, file + ".old");
  write(file, exercise.task());
  return file;
}

void Folder::save() const {
  auto json = nlohmann::json::object();
  for (const auto& [name, row] : progress_) {
    json[name] = {{"tries", row.tries},
                  {"hints", row.hints},
                  {"saw_solution", row.saw_solution},
                  {"solved", row.solved},
                  {"last", row.last}};
  }
  write(fs::path(path_) / kMark, json.dump(1) + "\n");
}

}  // namespace lockstep::workshop
