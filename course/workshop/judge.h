#pragma once
// A judge looks at what a learner's program showed and says, in a learner's words, what is not right yet. One
// stands beside each exercise's master (tutorials/masters/NAME): judges/CHAPTER.cpp.
//
//   LOCKSTEP_JUDGE("groups.1", attempt) {
//     for (const int world : {2, 3}) {
//       const auto run = attempt.run({.world = world});
//       for (const auto& rank : run.ranks) {
//         if (rank.number("mean") != 1.5) throw NotYet(format("rank {} has ...", rank.rank()));
//       }
//     }
//   }

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "course/workshop/process.h"

namespace lockstep::workshop {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

/// Not right yet: what is seen, and a thought that leads on.
class NotYet : public std::runtime_error {
 public:
  explicit NotYet(const std::string& what, std::string think = {})
      : std::runtime_error(what), think_(std::move(think)) {}
  const std::string& think() const { return think_; }

 private:
  std::string think_;
};

/// Of a program that does not come to an end: it computes for ever, or takes more and more memory.
class Endless : public NotYet {
  using NotYet::NotYet;
};

/// What a program showed under one name in one call of show().
struct Shown {
  std::string name;
  std::vector<double> numbers;
  std::string text;  // where it was one
};

/// One rank of a learner's program, at its end. What it has not shown is a NotYet that says so.
class RankRun {
 public:
  RankRun(int rank, Ending ending);
  int rank() const { return rank_; }
  const Ending& ending() const { return ending_; }
  /// Everything, in order.
  const std::vector<Shown>& shown() const { return shown_; }
  /// Whether anything of this name was shown.
  bool has(const std::string& name) const;
  /// What it showed last under this name: one number, a row of them, a text.
  double number(const std::string& name) const;
  const std::vector<double>& numbers(const std::string& name) const;
  const std::string& text(const std::string& name) const;
  /// Every row shown under this name, in order: an epoch each, say.
  std::vector<std::vector<double>> rows(const std::string& name) const;

 private:
  const Shown& last(const std::string& name) const;
  int rank_;
  Ending ending_;
  std::vector<Shown> shown_;
};

struct Run {
  std::vector<RankRun> ranks;
};

struct RunOptions {
  int world = 2;
  std::string label = {};                // what the learner reads while it runs, in place of "2 ranks"
  std::vector<std::string> before = {};  // words before the program: bash and a script that ends in exec "$@"
  std::vector<std::string> args = {};
  std::vector<std::string> settings = {};                    // "NAME=value", for every rank
  std::vector<std::vector<std::string>> rank_settings = {};  // and for one: its launcher's words, say
  std::chrono::milliseconds time{40'000};
  bool may_fail = false;  // the judge looks itself at how the ranks end
  bool alone = false;     // without a launcher's variables
};

/// A learner's file on trial.
class Attempt {
 public:
  virtual ~Attempt() = default;
  /// The file as it stands.
  virtual const std::string& text() const = 0;
  /// Its path.
  virtual const std::string& path() const = 0;
  /// An empty folder for this trial, where the ranks work.
  virtual const std::string& folder() const = 0;
  /// The program on so many ranks of this machine; it is built first. NotYet where a rank crashes, hangs or
  /// fails.
  virtual Run run(const RunOptions& options) = 0;
  /// `lockstep ARGS` in the same way: for configs.
  virtual Run lockstep(const std::vector<std::string>& args, const RunOptions& options) = 0;
  /// Any other program, once: bash for a job script.
  virtual Ending start(const std::vector<std::string>& argv, const std::vector<std::string>& settings) = 0;
};

using Judge = void (*)(Attempt& attempt);

/// The judge of an exercise; nullptr where there is none.
Judge find_judge(const std::string& exercise);
bool add_judge(const char* exercise, Judge judge);

/// What is often given in place of the right thing, whether that is so here, and what is said of it.
struct Guess {
  bool is;
  std::string what, think = {};
};
/// NotYet, "WHAT: what the first guess that is so says", where it is not right; `think` where there is no
/// such guess.
void expect(bool is_right, const std::string& what, const std::vector<Guess>& guesses = {},
            const std::string& think = {});

/// What each rank showed last under this name.
Row of_all(const Run& run, const std::string& name);
/// One behind the other.
Row flat(const Rows& rows);
/// Arguments of a program.
std::vector<std::string> as_words(const Row& numbers);

/// Are two numbers the same but for rounding? NaN is like nothing.
bool near(double is, double wanted, double tolerance = 1e-6);
bool near(const Row& is, const Row& wanted, double tolerance = 1e-6);
/// "1.5", "0.333333": as a message shows a number; a row as "0 2 4 ... 62".
std::string shown(double number);
std::string shown(const std::vector<double>& numbers);

/// A rank ended with an error of its own.
class LeftWithError : public NotYet {
 public:
  LeftWithError(int rank, std::string said, Fault error);
  /// The last that it printed.
  const std::string& said() const { return said_; }
  /// As lockstep says it; without words where it does not.
  const Fault& error() const { return error_; }

 private:
  std::string said_;
  Fault error_;
};

/// NotYet where a rank did not end well: the one that is the cause, not those that lost it. What the ranks
/// printed is in `folder`.
void require_good_end(const Run& run, const ProgramLimits& limits, const std::string& folder);

/// FOLDER/rank-0.log
std::string rank_log(const std::string& folder, int rank);

/// An error in a collective, as the rank that waited there would tell it; empty where it is another.
std::string plain_words(int rank, const Fault& error);

/// "the ranks are in two different calls: rank 0 in all-reduce, rank 1 in barrier"; empty where the error is
/// another, or all are in the same.
std::string different_calls(const Fault& error);

/// NotYet, in the general words, where a rank crashed, or failed and met no other rank in a collective.
void require_no_own_failure(const Run& run, const std::string& folder);

/// The program, once: its threads are the ranks, and its error speaks of all of them. `label`: what the
/// learner reads while it runs; `named`: how the error begins.
Run run_threads_of(Attempt& attempt, const std::vector<std::string>& args, const std::string& label,
                   const std::string& named);

/// The same but for the rounding of a training in float32.
bool agree(double is, double wanted);
bool agree(const std::vector<double>& is, const std::vector<double>& wanted);

/// NotYet where the ranks end with different numbers under this name.
void require_one_model(const Run& run, const std::string& name);

}  // namespace lockstep::workshop

#define LOCKSTEP_JUDGE_NAMED(exercise, attempt, judge)                                                 \
  static void judge(::lockstep::workshop::Attempt& attempt);                                           \
  [[maybe_unused]] static const bool judge##_added = ::lockstep::workshop::add_judge(exercise, judge); \
  static void judge([[maybe_unused]] ::lockstep::workshop::Attempt& attempt)
#define LOCKSTEP_JUDGE_OF(exercise, attempt, number) LOCKSTEP_JUDGE_NAMED(exercise, attempt, judge_##number)
#define LOCKSTEP_JUDGE_NUMBER(exercise, attempt, number) LOCKSTEP_JUDGE_OF(exercise, attempt, number)
/// The body of an exercise's judge follows. Not numbered by its line: files that are compiled together may
/// each have one there.
#define LOCKSTEP_JUDGE(exercise, attempt) LOCKSTEP_JUDGE_NUMBER(exercise, attempt, __COUNTER__)
