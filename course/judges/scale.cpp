// Chapter 9: scaling, a layer that is shared, and a grid of ranks.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "course/judges/shared.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"

namespace lockstep::workshop {
namespace {

// --- scale.1: a timing, and what it is worth

// what one of the functions says
void judge_function(const RankRun& rank, const char* name, double wanted, const std::string& about,
                    const std::vector<std::pair<double, Guess>>& values) {
  const double is = rank.number(name);
  std::vector<Guess> guesses;
  for (const auto& [value, guess] : values) guesses.push_back({near(is, value), guess.what, guess.think});
  expect(near(is, wanted), format("{}() says {}, and it is {} ({})", name, shown(is), shown(wanted), about),
         guesses);
}

LOCKSTEP_JUDGE("scale.1", attempt) {
  // ranks; seconds alone, shared, with as much each; samples and learning rate of one alone. The first is the
  // exercise's
  const Rows timings = {{4, 80, 25, 90, 32, 0.01}, {3, 60, 24, 75, 48, 0.2}};
  for (const auto& timing : timings) {
    const double ranks = timing[0], alone = timing[1], strong = timing[2], weak = timing[3],
                 batch = timing[4], lr = timing[5], speed_up = alone / strong;
    const auto run = attempt.run({.world = 1, .args = as_words(timing), .alone = true});
    const auto& rank = run.ranks[0];
    const auto about = format("{} s alone, {} s shared by {} ranks, {} s where each had as much", alone,
                              strong, ranks, weak);
    judge_function(
        rank, "speed_up", speed_up, about,
        {{1 / speed_up,
          {true, "the other way round", "four ranks that take a quarter of the time are 4 times as fast"}},
         {alone - strong, {true, "the seconds that were saved", "how many TIMES as fast is it?"}}});
    judge_function(
        rank, "strong_efficiency", speed_up / ranks, about,
        {{speed_up,
          {true, "that is the speed-up", "a speed-up of 4 is splendid on 4 ranks, and poor on 100"}}});
    judge_function(
        rank, "weak_efficiency", alone / weak, about,
        {{alone / weak / ranks,
          {true, "as if the work had been shared out",
           "each rank has as much to do as the one alone: perfect ranks take as long as it did"}}});
    const auto& batches = rank.numbers("batches");
    expect(batches == Row{batch, batch * ranks},
           format("weak_plan() says {} on {} ranks (samples a rank, and together)", shown(batches), ranks),
           {{batches == Row{timings[0][4], timings[0][4] * ranks},
             format("as with a batch of {}, whatever it was alone: {} here", timings[0][4], batch),
             "the plan of one alone is an argument"},
            {true, format("a rank's batch stays: {}", batch), "then how many samples are behind one step?"}});
    const double is = rank.number("lr");
    expect(near(is, lr * ranks),
           format("weak_plan() says {} for lr, and the linear rule {}", shown(is), shown(lr * ranks)),
           {{near(is, lr), "the learning rate has stayed",
             format("a step is a mean over {} times the samples, and there are so many times fewer steps",
                    ranks)},
            {near(is, lr * std::sqrt(ranks)), "it grows with the root of the ranks",
             "the rule that is asked for is the linear one"},
            {near(is, timings[0][5] * ranks),
             format("as with a rate of {}, whatever it was alone", shown(timings[0][5])),
             "the plan of one alone is an argument"}});
  }
}

// --- scale.2: the same numbers as the exercise makes, and the whole layer

constexpr int kSamples = 2, kWidth = 6;

double number(int row, int column, int step) {
  return (row * kWidth + column) * step % 7 - 3;
}

// a part of the outputs, or of a sum's terms
struct Range {
  int begin, end;
};
constexpr Range kAll{0, kWidth};

Row outputs(Range terms, double biases) {
  Row out;
  for (int i = 0; i < kSamples; ++i) {
    for (int j = 0; j < kWidth; ++j) {
      double sum = biases * number(0, j, 4);
      for (int k = terms.begin; k < terms.end; ++k) sum += number(i, k, 3) * number(j, k, 5);
      out.push_back(sum);
    }
  }
  return out;
}

Row input_gradient(Range terms) {
  Row out;
  for (int i = 0; i < kSamples; ++i) {
    for (int k = 0; k < kWidth; ++k) {
      double sum = 0;
      for (int j = terms.begin; j < terms.end; ++j) sum += number(i, j, 2) * number(j, k, 5);
      out.push_back(sum);
    }
  }
  return out;
}

Row columns_of(const Row& whole, Range range) {
  Row part;
  for (size_t i = 0; i < kSamples; ++i)
    for (int j = range.begin; j < range.end; ++j) part.push_back(whole[i * kWidth + static_cast<size_t>(j)]);
  return part;
}

void judge_layer(const RankRun& rank, int world) {
  const auto part = [&](int of) { return Range{of * kWidth / world, (of + 1) * kWidth / world}; };
  const auto whole = outputs(kAll, 1), gradient = input_gradient(kAll),
             own = columns_of(whole, part(rank.rank()));
  Row added(own.size()), stacked, mean = gradient;
  for (int other = 0; other < world; ++other) {
    const auto theirs = columns_of(whole, part(other));
    for (size_t i = 0; i < added.size(); ++i) added[i] += theirs[i];
    stacked.insert(stacked.end(), theirs.begin(), theirs.end());
  }
  for (double& value : mean) value /= world;
  const auto judge = [&](const char* function, const char* name, const Row& wanted,
                         const std::vector<std::pair<Row, Guess>>& values) {
    const auto& is = rank.numbers(name);
    std::vector<Guess> guesses;
    for (const auto& [value, guess] : values) guesses.push_back({near(is, value), guess.what, guess.think});
    expect(near(is, wanted),
           format("{}(), {} ranks: rank {} has {}, and the unsplit layer {}", function, world, rank.rank(),
                  shown(is), shown(wanted)),
           guesses);
  };
  judge("column_forward", "column", whole,
        {{own, {true, "the outputs of its own part alone", "the other ranks have the other outputs"}},
         {added,
          {true, "the parts added up, where they are to be joined",
           "rank 0's outputs and rank 1's are different ones"}},
         {stacked, {true, "the parts one below the other", "a row is a sample, with all its outputs"}}});
  judge("column_backward", "gradient", gradient,
        {{input_gradient(part(rank.rank())),
          {true, "the gradient of its own outputs alone", "an input feeds the outputs of all ranks"}},
         {mean,
          {true, "a mean over the ranks",
           "DDP takes a mean, over copies of the model; here the ranks are one model"}}});
  judge("row_forward", "row", whole,
        {{outputs(kAll, world), {true, "the bias once for each rank", "add it when the sum is made"}},
         {outputs(part(rank.rank()), 1),
          {true, "of its own inputs alone", "each rank has a part of every sum"}},
         {outputs(kAll, 0), {true, "the bias is missing", "add it when the sum is made"}}});
  // what travels is outputs, or gradients of inputs: never more numbers than the whole batch has of them
  for (const double given : rank.numbers("given"))
    expect(
        given <= kSamples * kWidth,
        format("{} ranks: in one call rank {} gives the others {} numbers, and {} are enough: weights have "
               "travelled",
               world, rank.rank(), shown(given), kSamples * kWidth),
        {}, "the whole weight is too large for one rank: let outputs travel, or gradients");
}

LOCKSTEP_JUDGE("scale.2", attempt) {
  for (const int world : {2, 3}) {
    const auto run = attempt.run({.world = world});
    for (const auto& rank : run.ranks) judge_layer(rank, world);
  }
}

// --- scale.4: a grid

constexpr int64_t kRanks = 8, kNode = 4, kStepSamples = 256;
constexpr double kRoom = 10;  // MB a rank

// of the line that is JSON: libraries may have said something, too
double megabytes_of(const std::string& dry_run) {
  std::istringstream lines(dry_run);
  for (std::string line; std::getline(lines, line);) {
    const auto json = base::parse_json(line);
    if (json.is_object() && json.contains("rank_mb") && json["rank_mb"].is_number()) return json["rank_mb"];
  }
  throw NotYet("the dry run does not say how much memory a rank needs:\n" + dry_run);
}

LOCKSTEP_JUDGE("scale.4", attempt) {
  const auto settings = settings_of(attempt);
  const auto count = [&](const char* section, const char* key) {
    return settings[section][key].as<int64_t>();
  };
  const auto data = count("parallel", "data"), tensor = count("parallel", "tensor"),
             pipeline = count("parallel", "pipeline");
  const auto lr = settings["optim"]["lr"].as<double>();
  expect(settings["model"]["hidden"].as<std::vector<int64_t>>() == std::vector<int64_t>{1018, 510},
         "the model has other widths than 1018 and 510", {}, "they are given: only the grid is free");
  expect(pipeline == 1, format("parallel.pipeline is {}", pipeline), {},
         "here the ranks share each layer: data and tensor");
  expect(tensor <= kNode,
         format("{} ranks share each layer, and a node has {}: every layer's sums would cross the network",
                tensor, kNode),
         {}, "at most how many ranks may share a layer?");
  expect(data == 0 || data * tensor == kRanks,
         format("{} copies of {} ranks each are {} ranks, and there are {}", data, tensor, data * tensor,
                kRanks),
         {}, "data x tensor is the number of ranks");
  expect(lr == 0.01, format("optim.lr is {}", shown(lr)), {},
         "with as many samples a step as before the learning rate stays: 0.01");
  expect(settings["optim"]["name"].as<std::string>() == "sgd" &&
             settings["optim"]["momentum"].as<double>() == 0.9,
         "the optimiser is another than sgd with momentum 0.9", {},
         "it is given, and so is its state: only the grid and the batch are free");
  const auto run =
      attempt.lockstep({"train", attempt.path(), "--dry-run", "--json"}, {.world = kRanks, .may_fail = true});
  const auto& ending = run.ranks[0].ending();
  expect(ending.is_well(), "lockstep does not take this grid:\n" +
                               (ending.error ? describe(Error(*ending.error)) : ending.printed));
  const double megabytes = megabytes_of(ending.printed);
  expect(megabytes <= kRoom, format("a rank needs {} MB, and has room for {}", shown(megabytes), kRoom), {},
         "where ranks share the layers, each keeps a part of them");
  const auto copies = kRanks / tensor, each = count("data", "batch_size") * count("train", "accumulate");
  expect(copies * each == kStepSamples,
         format("{} copies with {} samples each take {} samples a step, and {} are wanted", copies, each,
                copies * each, kStepSamples),
         {}, "the ranks of one copy take the same samples; each copy takes others");
}

}  // namespace
}  // namespace lockstep::workshop
