#include "course/workshop/master.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace fs = std::filesystem;
namespace {

// Behind //@ or #@ with nothing but space before it; empty where the line is no mark.
std::string mark_in(const std::string& line) {
  const auto text = base::trimmed(line);
  for (const std::string sign : {"//@ ", "#@ "})
    if (text.starts_with(sign)) return base::trimmed(text.substr(sign.size()));
  return {};
}

}  // namespace

class MasterReader {
 public:
  explicit MasterReader(const std::string& path) : path_(path) {
    const std::filesystem::path file(path);
    master_.name_ = file.stem();
    master_.extension_ = file.extension();
  }

  Master read() {
    std::istringstream text(base::read_text(path_));
    for (std::string line; std::getline(text, line);) {
      ++number_;
      if (const auto mark = mark_in(line); mark.empty()) {
        add(line);
      } else {
        obey(mark);
      }
    }
    if (inside_) refuse("the last hole has no //@ end");
    if (master_.title_.empty()) refuse("there is no //@ title");
    if (holes_ == 0) refuse("there is no //@ todo: nothing is left to do");
    return std::move(master_);
  }

 private:
  void obey(const std::string& mark) {
    const auto space = mark.find(' ');
    const auto word = mark.substr(0, space);
    const auto rest = space == std::string::npos ? std::string() : base::trimmed(mark.substr(space));
    if (word == "title") {
      master_.title_ = rest;
    } else if (word == "hint") {
      master_.hints_.push_back(rest);
    } else if (word == "unsolved") {
      master_.unsolved_ = rest;
    } else if (word == "todo") {
      if (inside_) refuse("a hole inside a hole");
      inside_ = true;
      ++holes_;
      kind_ = word;
    } else if (word == "solution" && inside_) {
      kind_ = word;
    } else if (word == "wrong" && inside_) {
      begin_wrong(rest);
    } else if (word == "right" && inside_) {
      begin_right(rest);
    } else if (word == "end" && inside_) {
      close();
    } else {
      refuse(format("the mark '{}' is not known here", word));
    }
    begun_ = false;
  }

  void begin_right(const std::string& name) {
    kind_ = name;
    auto& answers = master_.right_answers_;
    if (std::ranges::find(answers, name) == answers.end()) answers.push_back(name);
  }

  void begin_wrong(const std::string& rest) {
    const auto colon = rest.find(':');
    const auto words = colon == std::string::npos ? std::string() : base::trimmed(rest.substr(colon + 1));
    kind_ = base::trimmed(rest.substr(0, colon));
    auto& answers = master_.wrong_answers_;
    if (std::ranges::find(answers, kind_, &WrongAnswer::name) == answers.end())
      answers.push_back({kind_, words});
  }

  void close() {
    const auto& pieces = master_.pieces_;
    const bool solved = std::any_of(pieces.begin(), pieces.end(), [&](const Master::Piece& piece) {
      return piece.hole == holes_ - 1 && piece.kind == "solution";
    });
    if (!solved) refuse("the hole has no //@ solution");
    inside_ = false;
    kind_.clear();
  }

  // marks leave no empty line behind at the top of the file
  void add(const std::string& line) {
    auto& pieces = master_.pieces_;
    if (pieces.empty() && base::trimmed(line).empty()) return;
    if (!begun_) pieces.push_back({inside_ ? holes_ - 1 : -1, kind_, ""});
    begun_ = true;
    pieces.back().text += line + "\n";
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw InputError(what, format("{}:{}", path_, number_), "see `How to add an exercise` for its marks");
  }

  std::string path_;
  Master master_;
  int number_ = 0, holes_ = 0;
  bool inside_ = false, begun_ = false;
  std::string kind_;
};

Master Master::read(const std::string& path) {
  return MasterReader(path).read();
}

std::string Master::answer(const std::string& kind) const {
  const auto answered = [&](int hole) {
    return std::any_of(pieces_.begin(), pieces_.end(),
                       [&](const Piece& piece) { return piece.hole == hole && piece.kind == kind; });
  };
  std::string text;
  for (const auto& piece : pieces_) {
    const bool wanted = piece.hole < 0 || piece.kind == (answered(piece.hole) ? kind : "solution");
    if (wanted) text += piece.text;
  }
  return text;
}

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
      {9, "scale", "More than one node, and other ways to split the work"},
      {10, "compare", "DP against DDP"},
      {11, "beyond", "Text and reinforcement learning"},
  };
  return table;
}

std::string tutorials_folder() {
  const auto folder = fs::path(base::home_folder()) / "tutorials";
  std::error_code none;
  if (fs::is_directory(folder / "masters", none)) return folder;
  throw InputError("the course is missing", folder,
                   "set LOCKSTEP_HOME to lockstep's source tree or its installed share folder");
}

const Chapter& chapter_of(const Master& exercise) {
  static const Chapter none{0, "", "Beside the chapters"};
  const auto found = find_chapter(exercise);
  return found == chapters().end() ? none : *found;
}

std::vector<Master> exercises() {
  std::vector<Master> found;
  for (const auto& entry : fs::directory_iterator(fs::path(tutorials_folder()) / "masters"))
    if (is_master(entry.path())) found.push_back(Master::read(entry.path()));
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
  throw InputError(format("there is no exercise '{}'", base::printable(word)), "",
                   base::did_you_mean(name, names, "list them all with lockstep check in a course folder"));
}

}  // namespace lockstep::workshop
