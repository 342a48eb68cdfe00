#include "course/workshop/master.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/words.h"

namespace lockstep::workshop {
namespace {

// Behind //@ or #@ with nothing but space before it; empty where the line is no mark.
std::string mark_in(const std::string& line) {
  const auto text = base::trimmed(line);
  for (const std::string sign : {"//@ ", "#@ "}) {
    if (text.starts_with(sign)) return base::trimmed(text.substr(sign.size()));
  }
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
      refuse(format("nothing is known of the mark '{}' here", word));
    }
    begun_ = false;
  }

  void begin_right(const std::string& name) {
    kind_ = name;
    auto& answers = master_.right_answers_;
    if (std::find(answers.begin(), answers.end(), name) == answers.end()) answers.push_back(name);
  }

  void begin_wrong(const std::string& rest) {
    const auto colon = rest.find(':');
    kind_ = base::trimmed(rest.substr(0, colon));
    const auto words = colon == std::string::npos ? std::string() : base::trimmed(rest.substr(colon + 1));
    const auto known = std::find_if(master_.wrong_answers_.begin(), master_.wrong_answers_.end(),
                                    [&](const WrongAnswer& answer) { return answer.name == kind_; });
    if (known == master_.wrong_answers_.end()) {
      if (words.empty()) refuse("a wrong answer says what it is told: //@ wrong NAME: WORDS");
      master_.wrong_answers_.push_back({kind_, words});
    }
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

std::string Master::task() const {
  return assemble("todo");
}

std::string Master::solution() const {
  return assemble("solution");
}

std::string Master::answer(const std::string& name) const {
  return assemble(name);
}

std::string Master::assemble(const std::string& kind) const {
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

}  // namespace lockstep::workshop
