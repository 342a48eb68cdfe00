// How far a learner has come through the course, and a class.
#include "course/workshop/check.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "course/workshop/master.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace fs = std::filesystem;
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kNames = 12;
constexpr int kBar = 30;
constexpr size_t kMostOfAName = 4096, kMostOfADate = 16;

struct Mark {
  const char* word;
  TextStyle style;
};

// "read": solved after a look at the solution
Mark mark_of(const ExerciseProgress& progress) {
  if (!progress.solved.empty()) return {progress.saw_solution ? "read" : "done", TextStyle::good};
  return progress.tries > 0 ? Mark{"started", TextStyle::bad} : Mark{"", TextStyle::plain};
}

using Place = std::vector<Master>::const_iterator;

bool is_solved(const Folder& folder, const Master& exercise) {
  return !folder.progress_of(exercise.name()).solved.empty();
}

// the first from `begin` on that is not solved, or else the first of all
Place next_of(const Folder& folder, const std::vector<Master>& all, Place begin) {
  const auto is_open = [&](const Master& row) { return !is_solved(folder, row); };
  const auto found = std::find_if(begin, all.end(), is_open);
  return found == all.end() ? std::find_if(all.begin(), all.end(), is_open) : found;
}

std::string fitting(const std::string& text, size_t room) {
  return text.size() <= room ? text : text.substr(0, room - 3) + "...";
}

// of a chapter's column of names
size_t width_of(const std::vector<Master>& all, int chapter) {
  size_t width = kNames;
  for (const auto& row : all)
    if (chapter_of(row).number == chapter) width = std::max(width, row.name().size());
  return width;
}

void print_exercise(const Folder& folder, const Master& exercise, size_t width, bool is_next) {
  const auto mark = mark_of(folder.progress_of(exercise.name()));
  const auto row = format("{:<{}} {}", exercise.name(), width, exercise.title());
  output::print(styled(is_next ? "> " : "  ", TextStyle::strong) +
                styled(format("{:<6}", mark.word), mark.style) +
                styled(fitting(row, kColumns - 8), is_next ? TextStyle::strong : TextStyle::plain) + "\n");
}

std::string bar(size_t solved, size_t all) {
  const auto full = all == 0 ? 0 : static_cast<int>(solved * kBar / all);
  return std::string(static_cast<size_t>(full), '#') + std::string(static_cast<size_t>(kBar - full), '.');
}

struct Learner {
  std::string folder;
  int solved = 0, begun = 0, seen = 0;
  std::string last;
};

Learner learner_of(const Folder& folder) {
  Learner learner;
  learner.folder = base::printable(folder.path(), kMostOfAName);
  for (const auto& [name, row] : folder.progress()) {
    learner.solved += row.solved.empty() ? 0 : 1;
    learner.begun += row.tries > 0 && row.solved.empty() ? 1 : 0;
    learner.seen += row.saw_solution ? 1 : 0;
    learner.last = std::max(learner.last, row.last);
  }
  learner.last = base::printable(learner.last, kMostOfADate);  // a learner may have written it
  return learner;
}

std::vector<Folder> readable_ones(const std::vector<std::string>& paths) {
  std::vector<Folder> folders;
  for (const auto& path : paths) {
    try {
      folders.push_back(Folder::at(path));
    } catch (const std::exception& error) {
      log::warning("skipped: " + describe(error));
    }
  }
  if (folders.empty())
    throw InputError("none of the folders can be read", paths.empty() ? "lockstep workshop" : paths.front(),
                     "name folders that lockstep workshop init has made");
  return folders;
}

}  // namespace

void print_overview(const Folder& folder) {
  const auto all = exercises();
  const auto next = next_of(folder, all, all.begin());
  int chapter = -1;
  size_t solved = 0;
  for (auto row = all.begin(); row != all.end(); ++row) {
    const auto& own = chapter_of(*row);
    if (own.number != chapter)
      say(format("{}{}. {}", chapter < 0 ? "" : "\n", own.number, own.title), TextStyle::strong);
    chapter = own.number;
    solved += is_solved(folder, *row) ? 1 : 0;
    print_exercise(folder, *row, width_of(all, chapter), row == next);
  }
  say(format("\n[{}] {} of {}", bar(solved, all.size()), solved, all.size()));
  say(next == all.end() ? "all done" : format("next: lockstep check {}", next->name()), TextStyle::strong);
}

std::string next_words(const Folder& folder, const std::string& behind) {
  const auto all = exercises();
  const auto here =
      std::find_if(all.begin(), all.end(), [&](const Master& row) { return row.name() == behind; });
  const auto next = next_of(folder, all, here);
  if (next == all.end()) return "all done";
  const auto& chapter = chapter_of(*next);
  const bool is_same = here != all.end() && chapter.number == chapter_of(*here).number;
  return format("next: {}lockstep check {}",
                is_same ? "" : format("chapter {}, {}: ", chapter.number, chapter.title), next->name());
}

void print_class(const std::vector<std::string>& paths) {
  const auto total = exercises().size();
  std::vector<Learner> rows;
  for (const auto& folder : readable_ones(paths)) rows.push_back(learner_of(folder));
  size_t width = 6;
  for (const auto& row : rows) width = std::max(width, row.folder.size());
  output::line(format("{:<{}}  solved  started  solutions seen  last try", "folder", width));
  for (const auto& row : rows)
    output::line(format("{:<{}}  {:>6}  {:>7}  {:>14}  {}", row.folder, width,
                        format("{}/{}", row.solved, total), row.begun, row.seen,
                        row.last.empty() ? "-" : row.last));
}

void print_class_json(const std::vector<std::string>& paths) {
  auto json = nlohmann::json::array();
  for (const auto& folder : readable_ones(paths))
    json.push_back({{"folder", folder.path()}, {"exercises", nlohmann::json::parse(folder.progress_json())}});
  output::line(json.dump(1, ' ', true, nlohmann::json::error_handler_t::replace));
}

}  // namespace lockstep::workshop
