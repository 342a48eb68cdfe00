// Chapter 9: scaling, a layer that is shared, a pipeline, and a grid of ranks.
#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>

#include "course/checks/scripts.h"
#include "course/workshop/attempt.h"
#include "lockstep/base/json.h"

namespace lockstep::workshop {
namespace {

// ranks; seconds alone, shared, with as much each; samples and learning rate of one alone
CHECK_OF("scale.1", attempt) {
  const Rows timings = {{4, 80, 25, 90, 32, 0.01}, {3, 60, 24, 75, 48, 0.2}};  // the first is the exercise's
  for (const auto& timing : timings) {
    const double ranks = timing[0], alone = timing[1], strong = timing[2], weak = timing[3],
                 batch = timing[4], lr = timing[5];
    const auto run = attempt.run(
        {.world = 1,
         .label = format("{} s on one rank, {} s shared by {} ranks, {} s with the same work on each", alone,
                         strong, ranks, weak),
         .args = as_words(timing),
         .alone = true});
    const auto& rank = run.ranks[0];
    rank.expect_number("speed_up", alone / strong, "how many TIMES as fast is it?");
    rank.expect_number(
        "strong_efficiency", alone / strong / ranks,
        "divide by the number of ranks: a speed-up of 4 is perfect on 4 ranks, but poor on 100");
    rank.expect_number(
        "weak_efficiency", alone / weak,
        "compare the times: each rank has as much work as the single one, so perfect ranks take as long");
    rank.expect_numbers("batches", {batch, batch * ranks},
                        "keep the batch of each rank, and multiply for the total");
    rank.expect_number("lr", lr * ranks,
                       "use the linear rule: a step averages over that many times the samples");
  }
}

// --- scale.2: the same numbers as the exercise makes, and the whole layer

constexpr int kSamples = 2, kWidth = 6;

double layer_number(int row, int column, int step) {
  return (row * kWidth + column) * step % 7 - 3;
}

void check_layer(const RankRun& rank) {
  Row outputs, gradient;
  for (int i = 0; i < kSamples; ++i) {
    for (int j = 0; j < kWidth; ++j) {
      double output = layer_number(0, j, 4), input_gradient = 0;
      for (int k = 0; k < kWidth; ++k) {
        output += layer_number(i, k, 3) * layer_number(j, k, 5);
        input_gradient += layer_number(i, k, 2) * layer_number(k, j, 5);
      }
      outputs.push_back(output);
      gradient.push_back(input_gradient);
    }
  }
  rank.expect_numbers("column", outputs,
                      "column_forward(): return the unsplit layer's outputs, one row per sample. How are the "
                      "ranks' different outputs joined?");
  rank.expect_numbers("gradient", gradient,
                      "column_backward(): return a sum, not a mean: an input feeds the outputs of all ranks, "
                      "which form one model");
  rank.expect_numbers("row", outputs, "row_forward(): each rank has a part of every sum; add the bias once");
  // what travels is outputs, or gradients of inputs: never more numbers than the whole batch has of them
  for (const double given : rank.numbers("given"))
    expect(given <= kSamples * kWidth,
           format("in one call rank {} sends {} numbers to the others, but {} are enough: it sent weights",
                  rank.rank(), shown(given), kSamples * kWidth),
           "send outputs or gradients instead: the whole weight is too large for one rank");
}

CHECK_OF("scale.2", attempt) {
  for (const int world : {2, 3}) {
    const auto run = attempt.run({.world = world});
    for (const auto& rank : run.ranks) check_layer(rank);
  }
}

// --- scale.3: the order of a pipeline's stages, played through

struct Piece {
  char kind;  // F or B
  int micro_batch;
  auto operator<=>(const Piece&) const = default;
  std::string name() const { return format("{}{}", kind, micro_batch); }
};
using Order = std::vector<Piece>;

Order read_order(const std::string& text) {
  Order order;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    int micro_batch = -1;  // stays so where there is no number
    std::from_chars(word.data() + 1, word.data() + word.size(), micro_batch);
    order.push_back({word[0], micro_batch});
  }
  return order;
}

// How many turns all stages take together, each piece one turn long.
int turns_of(const std::vector<Order>& stages, const std::string& where) {
  const int last = static_cast<int>(stages.size()) - 1;
  std::set<std::pair<int, Piece>> done;
  std::vector<size_t> at(stages.size());
  // after the stage before it, or behind it; a backward after its own forward
  const auto may_begin = [&](int stage, const Piece& piece) {
    if (piece.kind == 'F') return stage == 0 || done.contains({stage - 1, piece});
    return done.contains({stage, {'F', piece.micro_batch}}) &&
           (stage == last || done.contains({stage + 1, piece}));
  };
  for (int turns = 0;; ++turns) {
    std::vector<std::pair<int, Piece>> begun;
    std::string waiting;
    for (int stage = 0; stage <= last; ++stage) {
      const auto& order = stages[static_cast<size_t>(stage)];
      const auto next = at[static_cast<size_t>(stage)];
      if (next == order.size()) continue;
      if (may_begin(stage, order[next])) begun.emplace_back(stage, order[next]);
      waiting += format("{} stage {} waits in {}", waiting.empty() ? "" : ",", stage, order[next].name());
    }
    if (waiting.empty()) return turns;
    expect(!begun.empty(), where + "no stage continues:" + waiting,
           "which stage must begin so that the others can continue?");
    for (const auto& piece : begun) {
      done.insert(piece);
      ++at[static_cast<size_t>(piece.first)];
    }
  }
}

void check_order(const Order& order, int stage, int stages, int micro_batches, const std::string& where) {
  const auto it = where + format("stage {} ", stage);
  auto sorted = order;
  std::sort(sorted.begin(), sorted.end());
  Order wanted;
  for (const char kind : {'B', 'F'})
    for (int i = 0; i < micro_batches; ++i) wanted.push_back({kind, i});
  std::string words;
  for (const auto& piece : order) words += " " + piece.name();
  expect(sorted == wanted, it + (order.empty() ? "does nothing" : "does" + words),
         format("each of {} micro-batches goes forward once and backward once", micro_batches));
  int now = 0, most = 0;
  for (const auto& piece : order) most = std::max(most, now += piece.kind == 'F' ? 1 : -1);
  expect(most <= stages - stage,
         it + format("keeps {} micro-batches at a time, but {} are enough", most, stages - stage),
         "run each backward as early as possible: it frees the activations of its micro-batch");
}

CHECK_OF("scale.3", attempt) {
  for (const auto& [stages, micro_batches] :
       {std::pair(3, 4), std::pair(4, 6), std::pair(4, 2), std::pair(2, 1)}) {
    const auto run = attempt.run(
        {.world = 1, .args = {std::to_string(stages), std::to_string(micro_batches)}, .alone = true});
    const auto where = format("{} stages, {} micro-batches: ", stages, micro_batches);
    std::vector<Order> orders;
    for (int stage = 0; stage < stages; ++stage)
      orders.push_back(read_order(run.ranks[0].text(format("stage {}", stage))));
    const auto complete = [&](int stage) {
      check_order(orders[static_cast<size_t>(stage)], stage, stages, micro_batches, where);
    };
    for (int stage = 0; stage < stages; ++stage) complete(stage);
    const int turns = turns_of(orders, where), fastest = 2 * (micro_batches + stages - 1);
    expect(turns <= fastest, where + format("the schedule takes {} turns, but {} are enough", turns, fastest),
           "what can stage 0 do while the other stages work on its first micro-batch?");
    run.ranks[0].expect_number("bubble", (stages - 1.0) / (micro_batches + stages - 1.0),
                               "compute the share of turns in which a stage waits: count the turns in which "
                               "stage 0 works, and all turns");
  }
}

// --- scale.4: a grid

constexpr int64_t kGridRanks = 8, kNodeRanks = 4, kStepSamples = 256;
constexpr double kRoom = 10;  // MB a rank

CHECK_OF("scale.4", attempt) {
  const auto settings = settings_of(attempt);
  const auto count = [&](const char* section, const char* key) {
    return settings[section][key].as<int64_t>();
  };
  const auto data = count("parallel", "data"), tensor = count("parallel", "tensor");
  expect(settings["model"]["hidden"].as<std::vector<int64_t>>() == std::vector<int64_t>{1018, 510} &&
             count("parallel", "pipeline") == 1 && settings["optim"]["name"].as<std::string>() == "sgd" &&
             settings["optim"]["momentum"].as<double>() == 0.9,
         "keep the widths 1018 and 510, sgd with momentum 0.9, and no pipeline",
         "change only the grid and the batch");
  expect(tensor <= kNodeRanks, format("{} ranks share each layer, but a node has {}", tensor, kNodeRanks),
         "share a layer only within a node: otherwise every layer's sums cross the network");
  expect(data == 0 || data * tensor == kGridRanks,
         format("{} copies of {} ranks each need {} ranks, but there are {}", data, tensor, data * tensor,
                kGridRanks));
  expect(settings["optim"]["lr"].as<double>() == 0.01, "optim.lr is not 0.01",
         "keep the learning rate: a step has as many samples as before");
  const auto run = attempt.lockstep({"train", attempt.path(), "--dry-run", "--json"},
                                    {.world = kGridRanks, .may_fail = true});
  const auto& ending = run.ranks[0].ending();
  expect(ending.is_well(),
         "lockstep rejects this grid:\n" + (ending.error ? describe(Error(*ending.error)) : ending.printed));
  double megabytes = -1;  // on the line that is JSON: libraries may have printed something, too
  std::istringstream lines(ending.printed);
  for (std::string line; std::getline(lines, line);) {
    if (const auto json = base::parse_json(line); json.is_object())
      megabytes = json.value("rank_mb", megabytes);
  }
  expect(megabytes >= 0 && megabytes <= kRoom,
         format("a rank needs {} MB, but has room for {}", shown(megabytes), kRoom),
         "share the layers among more ranks, so that each keeps a smaller part");
  const auto copies = kGridRanks / tensor, each = count("data", "batch_size") * count("train", "accumulate");
  expect(copies * each == kStepSamples,
         format("{} copies with {} samples each make {} samples per step instead of {}", copies, each,
                copies * each, kStepSamples),
         "count copies, not ranks: the ranks of one copy use the same samples");
}

}  // namespace
}  // namespace lockstep::workshop
