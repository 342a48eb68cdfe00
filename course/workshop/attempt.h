#pragma once
// The library that every exercise's check is written with. A check runs the learner's program as some ranks,
// compares what the ranks showed with what is right, and throws CheckFailure for the first difference:
//
//   CHECK_OF("groups.1", attempt) {
//     for (const int world : {2, 3}) {
//       const auto run = attempt.run({.world = world});
//       for (const auto& rank : run.ranks) rank.expect_number("mean", (world + 1) / 2.0, "what makes a
//       mean?");
//     }
//   }

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "course/workshop/run.h"
#include "lockstep/base/format.h"

namespace lockstep::workshop {

using Row = std::vector<double>;
using Rows = std::vector<Row>;
using Words = std::vector<std::string>;

/// Not right yet: what the check saw, and a thought that leads on.
class CheckFailure : public std::runtime_error {
 public:
  explicit CheckFailure(const std::string& what, std::string think = {})
      : std::runtime_error(what), think_(std::move(think)) {}
  const std::string& think() const { return think_; }

 private:
  std::string think_;
};

/// A frequent wrong answer: whether this is it, and what to tell the learner about it.
struct KnownMistake {
  bool is;
  std::string what, think = {};
};
/// CheckFailure unless it is right. The first guess that applies is appended as "WHAT: the guess".
void expect(bool is_right, const std::string& what, const std::string& think = {},
            const std::vector<KnownMistake>& guesses = {});

/// What a program showed in one call of show().
struct ShownValue {
  std::string name;
  Row numbers;
  std::string text;
};

/// One rank of a learner's program after its end. CheckFailure for what it has not shown.
class RankRun {
 public:
  RankRun(int rank, Ending ending);
  int rank() const { return rank_; }
  const Ending& ending() const { return ending_; }
  bool has(const std::string& name) const;
  /// What it showed last under this name.
  double number(const std::string& name) const;
  const Row& numbers(const std::string& name) const;
  const std::string& text(const std::string& name) const;
  /// What it showed in each call, in order.
  Rows rows(const std::string& name) const;
  /// The same of `count` calls.
  Rows rows(const std::string& name, size_t count) const;
  /// The same, where each call showed one number.
  Row column(const std::string& name, size_t count) const;
  /// CheckFailure where these are not the numbers that it showed last, but for rounding.
  void expect_numbers(const std::string& name, const Row& wanted, const std::string& think = {},
                      const std::vector<KnownMistake>& guesses = {}) const;
  void expect_number(const std::string& name, double wanted, const std::string& think = {},
                     const std::vector<KnownMistake>& guesses = {}) const;

 private:
  friend struct Run;
  const ShownValue& last(const std::string& name) const;
  int rank_;
  std::string about_;  // how messages name it: "with 2 ranks, rank 1"
  Ending ending_;
  std::vector<ShownValue> shown_;
};

struct Run {
  std::vector<RankRun> ranks;
  void add(Ending ending, int world);
};

struct RunOptions {
  int world = 2;
  std::string label = {};  // what the learner reads while it runs, in place of "2 ranks"
  Words before = {};       // words before the program: bash and a script that ends in exec "$@"
  Words args = {};
  Words settings = {};                    // "NAME=value", for every rank
  std::vector<Words> rank_settings = {};  // more of them for each rank
  std::chrono::milliseconds time{40'000};
  bool may_fail = false;  // the check itself looks at how the ranks end
  bool alone = false;     // without a launcher's variables
};

/// A learner's file while it is checked. The program is built when it is first run.
class Attempt {
 public:
  /// Programs run in `folder`, which is emptied first. `is_built`: `program` is there already.
  Attempt(std::string source, std::string program, std::string folder, bool is_built = false);

  const std::string& text() const { return text_; }
  const std::string& path() const { return source_; }
  const std::string& folder() const { return folder_; }
  /// Runs the program as ranks on this machine. CheckFailure where a rank crashes, hangs or fails.
  Run run(const RunOptions& options);
  /// Runs `lockstep ARGS` in the same way.
  Run lockstep(const Words& args, const RunOptions& options);
  /// Runs any other program once: bash for a job script.
  Ending start(const Words& argv, const Words& settings);
  /// What each rank of the learner's program printed in the last run.
  const Words& printed() const { return printed_; }

 private:
  Run run_ranks(const Words& argv, const RunOptions& options);

  std::string source_, program_, folder_, text_, told_;
  Words printed_;
  bool is_built_;
};

using Check = void (*)(Attempt& attempt);
/// nullptr where there is none.
Check find_check(const std::string& exercise);
bool add_check(const char* exercise, Check check);

/// What each rank showed last under this name.
Row of_all(const Run& run, const std::string& name);
/// The rows one after the other.
Row flat(const Rows& rows);
/// Numbers as arguments of a program.
Words as_words(const Row& numbers);
/// The same but for rounding; by default that of sums in double, or with 1e-5 that of a training in float.
bool near(double is, double wanted, double tolerance = 1e-6);
bool near(const Row& is, const Row& wanted, double tolerance = 1e-6);
bool agree(double is, double wanted);
bool agree(const Row& is, const Row& wanted);
/// How a message shows numbers: "1.5", "0.333333"; a row as "0 2 4 ... 62".
std::string shown(double number);
std::string shown(const Row& numbers);

/// CheckFailure where the ranks ended with different numbers under this name.
void require_one_model(const Run& run, const std::string& name);
/// CheckFailure where a rank did not end well; it names the cause. The ranks' output is in `folder`.
void require_good_end(const Run& run, const ProgramLimits& limits, const std::string& folder);
/// FOLDER/rank-0.log
std::string rank_log(const std::string& folder, int rank);

}  // namespace lockstep::workshop

#define CHECK_OF_NAMED(exercise, attempt, check)                                                       \
  static void check(::lockstep::workshop::Attempt& attempt);                                           \
  [[maybe_unused]] static const bool check##_added = ::lockstep::workshop::add_check(exercise, check); \
  static void check([[maybe_unused]] ::lockstep::workshop::Attempt& attempt)
#define CHECK_OF_NUMBERED(exercise, attempt, number) CHECK_OF_NAMED(exercise, attempt, check_##number)
#define CHECK_OF_COUNTED(exercise, attempt, number) CHECK_OF_NUMBERED(exercise, attempt, number)
/// The body of an exercise's check follows.
#define CHECK_OF(exercise, attempt) CHECK_OF_COUNTED(exercise, attempt, __COUNTER__)
