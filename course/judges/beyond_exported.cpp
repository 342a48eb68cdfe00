// Chapter 11, beyond.3: a model from Python, trained and evaluated.
#include <cmath>
#include <filesystem>

#include "course/workshop/judge.h"
#include "course/workshop/master.h"
#include "lockstep/base/format.h"

namespace lockstep::workshop {
namespace {

constexpr int kLinePoints = 12, kLineEpochs = 4;
constexpr double kOfTraining = 0.5;  // what the line has added to it in training, and not in evaluation

/// What a program had added to its line: in the first epoch's step, in those behind it, when evaluated.
struct Added {
  double first, later, evaluated;
};

struct LineErrors {
  double squares = 0, gradient = 0;  // means over the points
};

LineErrors errors_of(double slope, double added) {
  LineErrors mean;
  for (int i = 0; i < kLinePoints; ++i) {
    const double x = i / 10.0, y = 3 * x + std::sin(5 * x), error = slope * x + added - y;
    mean.squares += error * error / kLinePoints;
    mean.gradient += 2 * error * x / kLinePoints;
  }
  return mean;
}

struct TrainedLine {
  std::vector<double> evaluations;
  double slope = 0;
};

TrainedLine trained_line(const Added& added) {
  TrainedLine line;
  for (int epoch = 0; epoch < kLineEpochs; ++epoch) {
    line.slope -= 0.5 * errors_of(line.slope, epoch == 0 ? added.first : added.later).gradient;
    line.evaluations.push_back(errors_of(line.slope, added.evaluated).squares);
  }
  return line;
}

// one number in each epoch
std::vector<double> of_epochs(const RankRun& rank, const std::string& name) {
  std::vector<double> row;
  for (const auto& one : rank.rows(name)) row.insert(row.end(), one.begin(), one.end());
  if (row.size() == kLineEpochs) return row;
  throw NotYet(
      format("rank {} shows {} evaluations, and there are {} epochs", rank.rank(), row.size(), kLineEpochs),
      "each rank calls evaluate() once in each epoch");
}

void require_evaluation(const RankRun& rank, const std::string& where) {
  const auto modes = of_epochs(rank, "in training");
  for (size_t epoch = 0; epoch < modes.size(); ++epoch) {
    if (modes[epoch] != 0)
      throw NotYet(
          format("{}, after epoch {} rank {}'s model is evaluated as in training", where, epoch, rank.rank()),
          "which call tells a module that what comes is an evaluation?");
  }
}

struct WrongLine {
  Added added;
  const char *what, *think;
};

constexpr WrongLine kWrongLines[] = {
    {{kOfTraining, kOfTraining, kOfTraining},
     "they have 0.5 added, though the model knows that it is evaluated: the file of evaluation was not "
     "loaded",
     "`if self.training` was decided when the file was written: each of the two has one of the answers"},
    {{0, 0, kOfTraining},
     "it trains without the 0.5 and is evaluated with it: the other way round",
     "the first file is that of training"},
    {{0, 0, 0},
     "the 0.5 of training is never added: it is the model of evaluation that is trained",
     "there are two files, and the first one is that of training"},
    {{kOfTraining, 0, 0},
     "from epoch 1 on it trains without the 0.5: it stays in evaluation",
     "an evaluation ends, and the next step is one of training: who tells the model?"},
};

constexpr const char* kElse = "only the two files, the wrap and the modes are to be changed";

void judge_line(const RankRun& rank, const std::string& where) {
  require_evaluation(rank, where);
  const auto is = of_epochs(rank, "evaluation");
  const auto [wanted, slope] = trained_line({kOfTraining, kOfTraining, 0});
  const auto what = format("{}, rank {}'s evaluations are {}, and should be {}", where, rank.rank(),
                           shown(is), shown(wanted));
  for (const auto& wrong : kWrongLines) {
    if (agree(is, trained_line(wrong.added).evaluations)) throw NotYet(what + ": " + wrong.what, wrong.think);
  }
  if (!agree(is, wanted)) throw NotYet(what, kElse);
  if (!agree(rank.number("slope"), slope))
    throw NotYet(format("{}, rank {}'s slope is {}, and should be {}", where, rank.rank(),
                        shown(rank.number("slope")), shown(slope)),
                 kElse);
}

LOCKSTEP_JUDGE("beyond.3", attempt) {
  const std::string models = std::filesystem::absolute(tutorials_folder()) / "models/";
  for (const int world : {2, 3}) {
    const auto run = attempt.run({.world = world, .args = {models + "line.pt2", models + "line.eval.pt2"}});
    require_one_model(run, "slope");
    for (const auto& rank : run.ranks) judge_line(rank, format("with {} ranks", world));
  }
}

}  // namespace
}  // namespace lockstep::workshop
