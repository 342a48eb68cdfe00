// Chapter 11: texts of every length, acting on every rank, and a model from Python.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "course/workshop/attempt.h"
#include "course/workshop/master.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace {

// --- beyond.1

constexpr int kListedEpochs = 3;

struct Texts {
  int world;
  Row lengths;
  size_t window;
  int batch;
};

const std::vector<Texts>& sets_of_texts() {
  static const std::vector<Texts> made = {
      {2, {5, 3, 9, 4, 12, 3, 6, 4, 3, 7, 20, 5, 8, 31, 6, 10, 4, 15, 3, 9, 6, 11, 5, 7}, 8, 3},
      {3, {7, 18, 4, 9, 3, 26, 5, 12, 6, 8, 14, 10, 4, 33, 9, 6, 21, 3, 11, 5, 16}, 8, 2},
      {2, {6, 3, 11, 4, 9, 17, 5}, 100, 2},
  };
  return made;
}

// Three rows for each chosen text: tokens (text 0 is 1000 1001 ..., text 1 is 2000 2001 ...), which sentence
// they are of, the mask.
void check_batches(const Texts& texts, const RankRun& rank) {
  const auto chosen = rank.rows("texts"), shapes = rank.rows("shape", chosen.size()),
             batches = rank.rows("batch", chosen.size());
  expect(!chosen.empty(), "no batch is shown", "main() shows them all: leave it as it is");
  for (size_t i = 0; i < chosen.size(); ++i) {
    double width = 0;
    for (const double text : chosen[i]) {
      expect(text >= 0 && text < static_cast<double>(texts.lengths.size()),
             format("there is no text {}", text));
      width = std::max(width, texts.lengths[static_cast<size_t>(text)]);
    }
    const Row shape = {static_cast<double>(chosen[i].size()), 3, width};
    expect(shapes[i] == shape,
           format("the batch of the texts {} has the shape [{}], and it should be [{}]", shown(chosen[i]),
                  shown(shapes[i]), shown(shape)),
           "texts, three rows for each, and as wide as the longest of them: padding costs as much time as "
           "words");
    Row wanted;
    for (const double text : chosen[i]) {
      const double length = texts.lengths[static_cast<size_t>(text)];
      for (double at = 0; at < width; ++at) wanted.push_back(at < length ? 1000 * (text + 1) + at : 0);
      wanted.insert(wanted.end(), static_cast<size_t>(width), 0);
      for (double at = 0; at < width; ++at) wanted.push_back(at < length ? 1 : 0);
    }
    const auto at = static_cast<size_t>(
        std::mismatch(batches[i].begin(), batches[i].end(), wanted.begin(), wanted.end()).first -
        batches[i].begin());
    if (at == wanted.size()) continue;
    const auto row = static_cast<size_t>(width);
    constexpr const char* kRows[] = {"tokens", "sentence", "mask"};
    throw NotYet(
        format("the batch of the texts {}: in the row `{}` of text {} place {} has {}, and {} is right",
               shown(chosen[i]), kRows[at / row % 3], chosen[i][at / row / 3], at % row,
               at < batches[i].size() ? shown(batches[i][at]) : "nothing", shown(wanted[at])),
        "first its tokens in order, then padding, 0; the second row is all 0; the mask is 1 where there is a "
        "token, 0 behind them");
  }
}

// The epoch's list, the same on all ranks: every text once, in windows by length.
Row check_list(const Texts& texts, const Run& run, int epoch) {
  const auto name = format("epoch {}", epoch);
  const auto where =
      format("in epoch {}, with {} texts and windows of {}, ", epoch, texts.lengths.size(), texts.window);
  const auto& list = run.ranks[0].numbers(name);
  for (const auto& rank : run.ranks)
    expect(rank.numbers(name) == list, where + "the ranks go through different lists",
           "they take turns along one list: all must draw it from the same numbers");
  auto sorted = list;
  std::sort(sorted.begin(), sorted.end());
  Row all;
  for (size_t text = 0; text < texts.lengths.size(); ++text) all.push_back(static_cast<double>(text));
  expect(sorted == all, where + "the list is " + shown(list), "each text is in it once");
  const auto is_shorter = [&](double a, double b) {
    return texts.lengths[static_cast<size_t>(a)] < texts.lengths[static_cast<size_t>(b)];
  };
  expect(texts.window >= list.size() || !std::is_sorted(list.begin(), list.end(), is_shorter),
         where + "the whole list goes from the shortest to the longest: nothing is random in it");
  for (size_t begin = 0; begin < list.size(); begin += texts.window) {
    const auto end = std::min(begin + texts.window, list.size());
    expect(std::is_sorted(list.begin() + static_cast<std::ptrdiff_t>(begin),
                          list.begin() + static_cast<std::ptrdiff_t>(end), is_shorter),
           where + format("the texts at the places {} to {} are not in order of length", begin, end - 1),
           "a shuffled list, cut into windows, each from the shortest to the longest; the last one may be "
           "shorter");
  }
  return list;
}

std::set<std::set<double>> windows_of(const Row& list, size_t window) {
  std::set<std::set<double>> windows;
  for (auto begin = list.begin(); list.end() - begin >= static_cast<std::ptrdiff_t>(window);
       begin += static_cast<std::ptrdiff_t>(window))
    windows.emplace(begin, begin + static_cast<std::ptrdiff_t>(window));
  return windows;
}

CHECK_OF("beyond.1", attempt) {
  const auto run_with = [&](const Texts& texts) {
    return attempt.run({.world = texts.world,
                        .args = {base::join(as_words(texts.lengths), " "), std::to_string(texts.window),
                                 std::to_string(texts.batch)}});
  };
  std::vector<Row> first_lists;
  for (const auto& texts : sets_of_texts()) {
    const auto run = run_with(texts);
    for (const auto& rank : run.ranks) check_batches(texts, rank);
    std::vector<Row> lists;
    for (int epoch = 0; epoch < kListedEpochs; ++epoch) lists.push_back(check_list(texts, run, epoch));
    if (first_lists.empty()) first_lists = lists;
    std::set<std::set<double>> known;
    for (const auto& list : lists) {
      for (const auto& window : windows_of(list, texts.window))
        expect(known.insert(window).second,
               format("the texts {} are together in a window in two epochs",
                      shown(Row(window.begin(), window.end()))),
               "shuffle by the epoch first, and cut into windows then: other texts meet in each epoch");
    }
  }
  const auto again = run_with(sets_of_texts().front());
  for (size_t epoch = 0; epoch < first_lists.size(); ++epoch)
    expect(again.ranks[0].numbers(format("epoch {}", epoch)) == first_lists[epoch],
           format("epoch {} has another list when the program is run again", epoch),
           "a run that goes on needs this list again: draw it from the seed and the epoch alone");
}

// --- beyond.2

struct RewardedStep {
  double reward;
  bool has_ended;
};

// as the exercise's main() plays
std::vector<RewardedStep> played(int rank, int steps) {
  std::vector<RewardedStep> all;
  for (int i = 0; i < steps + 3 * rank; ++i)
    all.push_back({static_cast<double>((5 * i + 3 * rank) % 7), i % (4 + rank) == 2 + rank});
  return all;
}

Row returns_of(const std::vector<RewardedStep>& steps, double gamma) {
  Row returns(steps.size());
  double later = 0;
  for (size_t i = steps.size(); i-- > 0;)
    returns[i] = later = steps[i].reward + (steps[i].has_ended ? 0 : gamma * later);
  return returns;
}

// No two players have the same seed; `names` are those of the players, in the order of the text.
void check_seeds(const std::string& text, const Words& names, std::map<std::string, std::string>& players) {
  std::istringstream words(text);
  const Words seeds{std::istream_iterator<std::string>(words), {}};
  expect(seeds.size() == names.size(),
         format("{} seeds are shown, and there are {} players", seeds.size(), names.size()),
         "main() shows them all: leave it as it is");
  for (size_t i = 0; i < seeds.size(); ++i) {
    const auto [there, is_new] = players.emplace(seeds[i], names[i]);
    expect(is_new, format("{} and {} have the same seed, {}", there->second, names[i], seeds[i]),
           "they play the same episodes. A sum of numbers is soon the sum of others: give each a place of "
           "its own");
  }
}

std::string player(int seed, int rank, int environment) {
  return format("environment {} of rank {} in a run with seed {}", environment, rank, seed);
}

void check_all_seeds(const Run& run, int environments) {
  std::map<std::string, std::string> players, far_players;
  for (int seed = 0; seed < 3; ++seed) {
    for (const auto& rank : run.ranks) {
      Words names;
      for (int i = 0; i < environments; ++i) names.push_back(player(seed, rank.rank(), i));
      check_seeds(rank.text(format("seeds of run {}", seed)), names, players);
    }
  }
  // what main() tries besides the ranks that are there
  constexpr int kFar[] = {0, 1, 10, 16, 31, 32, 37, 64, 100, 128, 256, 512, 999};
  Words names;
  for (const int seed : kFar)
    for (const int rank : kFar)
      for (const int environment : kFar) names.push_back(player(seed, rank, environment));
  check_seeds(run.ranks[0].text("far seeds"), names, far_players);
}

void check_returns(const Run& run, int steps, double gamma) {
  std::vector<Row> returns;
  for (const auto& rank : run.ranks) returns.push_back(returns_of(played(rank.rank(), steps), gamma));
  const auto all = flat(returns);
  double mean = 0, squares = 0;
  for (const double value : all) mean += value / static_cast<double>(all.size());
  for (const double value : all) squares += (value - mean) * (value - mean) / static_cast<double>(all.size());
  for (const auto& rank : run.ranks) {
    auto& own = returns[static_cast<size_t>(rank.rank())];
    rank.expect_numbers(
        "returns", own,
        "a step's reward and, up to the end of its episode, gamma times what comes after it: begin at "
        "the end");
    for (double& value : own) value = (value - mean) / std::sqrt(squares);
    rank.expect_numbers(
        "normalised", own,
        "minus the mean, divided by the deviation, both over the steps of all ranks: sum how many, "
        "too, as a mean of means is not the mean");
  }
}

CHECK_OF("beyond.2", attempt) {
  struct Round {
    int world, environments, steps;
    double gamma;
  };
  std::string seeds;
  for (const auto& [world, environments, steps, gamma] :
       {Round{2, 3, 6, 0.5}, Round{3, 999, 11, 0.9}, Round{2, 999, 1, 0.99}}) {
    const auto run = attempt.run(
        {.world = world, .args = {std::to_string(environments), std::to_string(steps), shown(gamma)}});
    check_all_seeds(run, environments);
    check_returns(run, steps, gamma);
    if (environments != 999) continue;
    const auto& own = run.ranks[0].text("seeds of run 1");
    expect(seeds.empty() || seeds == own, "rank 0 has other seeds when it is run again with the same seed",
           "the seed of a run stands for all that happens in it");
    seeds = own;
  }
}

// --- beyond.3: a line that has 0.5 added to it in training, and not in evaluation

constexpr int kLinePoints = 12;
constexpr size_t kLineEpochs = 4;

CHECK_OF("beyond.3", attempt) {
  const std::string models = std::filesystem::absolute(tutorials_folder()) / "models/";
  Row evaluations;
  double slope = 0;
  for (size_t epoch = 0; epoch < kLineEpochs; ++epoch) {
    double gradient = 0, squares = 0;
    const auto each_point = [&](auto visit) {
      for (int i = 0; i < kLinePoints; ++i) visit(i / 10.0, 3 * i / 10.0 + std::sin(5 * i / 10.0));
    };
    each_point([&](double x, double y) { gradient += 2 * (slope * x + 0.5 - y) * x / kLinePoints; });
    slope -= 0.5 * gradient;
    each_point([&](double x, double y) { squares += (slope * x - y) * (slope * x - y) / kLinePoints; });
    evaluations.push_back(squares);
  }
  for (const int world : {2, 3}) {
    const auto run = attempt.run({.world = world, .args = {models + "line.pt2", models + "line.eval.pt2"}});
    require_one_model(run, "slope");
    for (const auto& rank : run.ranks) {
      const auto modes = rank.column("in training", kLineEpochs), is = rank.column("evaluation", kLineEpochs);
      expect(modes == Row(kLineEpochs, 0), format("rank {}'s model is evaluated as in training", rank.rank()),
             "which call tells a module that what comes is an evaluation?");
      expect(
          agree(is, evaluations),
          format("rank {}'s evaluations are {}, and should be {}", rank.rank(), shown(is),
                 shown(evaluations)),
          "the first file is that of training, with 0.5 added, and the second that of evaluation; after an "
          "evaluation the model goes back to training");
      rank.expect_number("slope", slope, "only the two files, the wrap and the modes are to be changed");
    }
  }
}

}  // namespace
}  // namespace lockstep::workshop
