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
  expect(!chosen.empty(), "no batch is shown", "restore main(), which shows them all");
  for (size_t i = 0; i < chosen.size(); ++i) {
    double width = 0;
    for (const double text : chosen[i]) {
      expect(text >= 0 && text < static_cast<double>(texts.lengths.size()),
             format("text {} does not exist", text));
      width = std::max(width, texts.lengths[static_cast<size_t>(text)]);
    }
    const Row shape = {static_cast<double>(chosen[i].size()), 3, width};
    expect(
        shapes[i] == shape,
        format("the batch of texts {} has shape [{}] instead of [{}]", shown(chosen[i]), shown(shapes[i]),
               shown(shape)),
        "make it as wide as its longest text, with three rows per text: padding costs as much time as words");
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
    throw CheckFailure(
        format("the batch of texts {}: row `{}` of text {}, index {}: {} instead of {}", shown(chosen[i]),
               kRows[at / row % 3], chosen[i][at / row / 3], at % row,
               at < batches[i].size() ? shown(batches[i][at]) : "nothing", shown(wanted[at])),
        "put the tokens first, then 0 as padding; the second row is all 0; the mask is 1 for tokens "
        "and 0 for padding");
  }
}

// The epoch's list, the same on all ranks: every text once, in windows by length.
Row check_list(const Texts& texts, const Run& run, int epoch) {
  const auto name = format("epoch {}", epoch);
  const auto where =
      format("in epoch {}, with {} texts and windows of {}, ", epoch, texts.lengths.size(), texts.window);
  const auto& list = run.ranks[0].numbers(name);
  for (const auto& rank : run.ranks)
    expect(rank.numbers(name) == list, where + "the ranks use different lists",
           "draw the list from the same seed on all ranks: they take turns along one list");
  auto sorted = list;
  std::sort(sorted.begin(), sorted.end());
  Row all;
  for (size_t text = 0; text < texts.lengths.size(); ++text) all.push_back(static_cast<double>(text));
  expect(sorted == all, where + "the list is " + shown(list), "include each text once");
  const auto is_shorter = [&](double a, double b) {
    return texts.lengths[static_cast<size_t>(a)] < texts.lengths[static_cast<size_t>(b)];
  };
  expect(texts.window >= list.size() || !std::is_sorted(list.begin(), list.end(), is_shorter),
         where + "the whole list is sorted from the shortest to the longest, so nothing in it is random");
  for (size_t begin = 0; begin < list.size(); begin += texts.window) {
    const auto end = std::min(begin + texts.window, list.size());
    expect(
        std::is_sorted(list.begin() + static_cast<std::ptrdiff_t>(begin),
                       list.begin() + static_cast<std::ptrdiff_t>(end), is_shorter),
        where + format("the texts at positions {} to {} are not sorted by length", begin, end - 1),
        "shuffle the list, cut it into windows, and sort each window by length; the last one may be shorter");
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
    for (const auto& list : lists)
      for (const auto& window : windows_of(list, texts.window))
        expect(
            known.insert(window).second,
            format("texts {} share a window in two epochs", shown(Row(window.begin(), window.end()))),
            "shuffle with the epoch first, then cut into windows, so that each epoch combines other texts");
  }
  const auto again = run_with(sets_of_texts().front());
  for (size_t epoch = 0; epoch < first_lists.size(); ++epoch)
    expect(again.ranks[0].numbers(format("epoch {}", epoch)) == first_lists[epoch],
           format("epoch {} has a different list when the program runs again", epoch),
           "draw the list only from the seed and the epoch: a resumed run needs it again");
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
         format("the program shows {} seeds instead of {}", seeds.size(), names.size()),
         "restore main(), which shows them all");
  for (size_t i = 0; i < seeds.size(); ++i) {
    const auto [there, is_new] = players.emplace(seeds[i], names[i]);
    expect(is_new, format("{} and {} have the same seed, {}", there->second, names[i], seeds[i]),
           "avoid equal seeds, which give equal episodes: different numbers may have the same sum, so give "
           "each its own range");
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
        "add gamma times the next return to each reward, up to the end of the episode: begin at the end");
    for (double& value : own) value = (value - mean) / std::sqrt(squares);
    rank.expect_numbers("normalized", own,
                        "subtract the mean and divide by the deviation, both over the steps of all ranks; "
                        "sum the counts as well, because a mean of means is not the mean");
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
    expect(seeds.empty() || seeds == own, "rank 0 has different seeds when it runs again with the same seed",
           "derive all seeds from the seed of the run");
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
      expect(modes == Row(kLineEpochs, 0),
             format("rank {}'s model is in training mode during evaluation", rank.rank()),
             "which call puts a module into evaluation mode?");
      expect(agree(is, evaluations),
             format("rank {}'s evaluations are {} instead of {}", rank.rank(), shown(is), shown(evaluations)),
             "pass the training file first (it adds 0.5) and the evaluation file second, and return to "
             "training mode after an evaluation");
      rank.expect_number("slope", slope, "change only the two files, the wrap and the modes");
    }
  }
}

}  // namespace
}  // namespace lockstep::workshop
