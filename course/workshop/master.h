#pragma once
// An exercise and its solution in one file, so that they cannot drift apart: the master.
//
// A line that starts with //@ (#@ in scripts and YAML) is a mark. At the top:
//   //@ title      Average a loss over the ranks
//   //@ hint       What does all_reduce leave on every rank?
//   //@ unsolved   words of the message that the file gets as it is found
// Below, holes: what the learner finds, what solves it, and other right and wrong answers. A wrong answer may
// name words of the message that it gets:
//   //@ todo
//   //@ solution
//   //@ right mean
//   //@ wrong sum: is the sum of all losses
//   //@ end

#include <string>
#include <vector>

namespace lockstep::workshop {

/// A frequent wrong answer, and words of the message that it gets, where the master names some.
struct WrongAnswer {
  std::string name, words;
};

class Master {
 public:
  /// InputError, with file and line, where the marks make no sense.
  static Master read(const std::string& path);

  /// groups.1
  const std::string& name() const { return name_; }
  /// .cpp, .yaml, .pbs, .slurm
  const std::string& extension() const { return extension_; }
  const std::string& title() const { return title_; }
  /// From a gentle question to nearly all of it.
  const std::vector<std::string>& hints() const { return hints_; }
  /// Words of the message that the file gets as the learner finds it.
  const std::string& unsolved() const { return unsolved_; }
  const std::vector<WrongAnswer>& wrong_answers() const { return wrong_answers_; }
  /// Names of right answers besides the solution.
  const std::vector<std::string>& right_answers() const { return right_answers_; }

  /// The file as the learner finds it.
  std::string task() const { return answer("todo"); }
  std::string solution() const { return answer("solution"); }
  /// The solution, but for the holes to which this answer was given.
  std::string answer(const std::string& name) const;

 private:
  struct Piece {
    int hole;          // -1: the same in all
    std::string kind;  // todo, solution, or the name of an answer
    std::string text;
  };

  std::string name_, extension_, title_, unsolved_;
  std::vector<std::string> hints_, right_answers_;
  std::vector<WrongAnswer> wrong_answers_;
  std::vector<Piece> pieces_;
  friend class MasterReader;
};

struct Chapter {
  int number;
  std::string word;  // of its exercises: groups.1 is the first of the chapter `groups`
  std::string title;
};

const std::vector<Chapter>& chapters();

/// LOCKSTEP_HOME/tutorials; InputError where there is none.
std::string tutorials_folder();

/// Where the exercise belongs; number 0 where to none.
const Chapter& chapter_of(const Master& exercise);

/// Every exercise, in the order of the course.
std::vector<Master> exercises();
/// By its name, or the path of its file; InputError, with the nearest name, where there is none.
Master find_exercise(const std::string& word);

}  // namespace lockstep::workshop
