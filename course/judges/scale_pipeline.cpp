// Chapter 9: the order of a pipeline's stages, played through.
#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <sstream>

#include "course/workshop/judge.h"
#include "lockstep/base/format.h"

namespace lockstep::workshop {
namespace {

struct Work {
  char kind;
  int micro_batch;
  auto operator<=>(const Work&) const = default;
};

std::string name_of(const Work& work) {
  return format("{}{}", work.kind, work.micro_batch);
}

// all stages' orders, and how many micro-batches there are
struct Plan {
  std::vector<std::vector<Work>> stages;
  int micro_batches;

  int last() const { return static_cast<int>(stages.size()) - 1; }
  std::string where(int stage) const {
    return format("{} stages, {} micro-batches: stage {} ", stages.size(), micro_batches, stage);
  }
};

std::vector<Work> read_order(const std::string& text) {
  std::vector<Work> order;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    int micro_batch = -1;  // stays so where there is no number
    std::from_chars(word.data() + 1, word.data() + word.size(), micro_batch);
    order.push_back({word[0], micro_batch});
  }
  return order;
}

// each micro-batch once forward and once backward
void judge_completeness(const Plan& plan, int stage) {
  const auto& order = plan.stages[static_cast<size_t>(stage)];
  expect(!order.empty(), plan.where(stage) + "does nothing", {}, "which work does it begin with?");
  for (const auto& work : order) {
    expect((work.kind == 'F' || work.kind == 'B') && work.micro_batch >= 0 &&
               work.micro_batch < plan.micro_batches,
           plan.where(stage) + format("does {}, and there is no such work", name_of(work)));
    expect(std::count(order.begin(), order.end(), work) == 1,
           plan.where(stage) + format("does {} a second time", name_of(work)));
  }
  for (int i = 0; i < plan.micro_batches; ++i) {
    for (const Work work : {Work{'F', i}, Work{'B', i}})
      expect(std::count(order.begin(), order.end(), work) == 1,
             plan.where(stage) + format("never does {}: micro-batch {} never has its {}", name_of(work), i,
                                        work.kind == 'F' ? "forward" : "backward"),
             {}, "each micro-batch goes forward once and backward once");
  }
}

// All stages at once, each piece of work a turn long: what is done when, or who waits for whom.
class Play {
 public:
  explicit Play(const Plan& plan) : plan_(plan), at_(plan.stages.size(), 0) {}

  int turns() {
    int turn = 0;
    for (; !is_over(); ++turn) {
      if (step().empty()) throw NotYet(deadlock(), "which stage has to begin so that this one can go on?");
    }
    return turn;
  }

 private:
  std::optional<Work> next(int stage) const {
    const auto at = at_[static_cast<size_t>(stage)];
    const auto& order = plan_.stages[static_cast<size_t>(stage)];
    return at < order.size() ? std::optional(order[at]) : std::nullopt;
  }

  bool is_done(int stage, const Work& work) const { return done_.contains({stage, work}); }

  // whose work has to come before: the stage before this one, or behind it; its own forward before a backward
  bool may_begin(int stage, const Work& work) const {
    if (work.kind == 'F') return stage == 0 || is_done(stage - 1, work);
    return is_done(stage, {'F', work.micro_batch}) && (stage == plan_.last() || is_done(stage + 1, work));
  }

  std::vector<std::pair<int, Work>> step() {
    std::vector<std::pair<int, Work>> begun;
    for (int stage = 0; stage <= plan_.last(); ++stage) {
      const auto work = next(stage);
      if (work && may_begin(stage, *work)) begun.emplace_back(stage, *work);
    }
    for (const auto& piece : begun) {
      done_[piece] = true;
      ++at_[static_cast<size_t>(piece.first)];
    }
    return begun;
  }

  bool is_over() const {
    for (int stage = 0; stage <= plan_.last(); ++stage) {
      if (next(stage)) return false;
    }
    return true;
  }

  std::string waits(int stage, const Work& work) const {
    const auto mine = format("stage {} waits in {}", stage, name_of(work));
    if (work.kind == 'B' && !is_done(stage, {'F', work.micro_batch}))
      return mine + " for its own forward of that micro-batch";
    return mine + format(" for stage {}'s {}", work.kind == 'F' ? stage - 1 : stage + 1, name_of(work));
  }

  std::string deadlock() const {
    std::string text =
        format("{} stages, {} micro-batches: nobody goes on", plan_.stages.size(), plan_.micro_batches);
    const char* between = ": ";
    for (int stage = 0; stage <= plan_.last(); ++stage) {
      if (const auto work = next(stage)) text += between + waits(stage, *work), between = ", ";
    }
    return text;
  }

  const Plan& plan_;
  std::vector<size_t> at_;
  std::map<std::pair<int, Work>, bool> done_;
};

// the most micro-batches whose activations a stage keeps at once
int alive(const std::vector<Work>& order) {
  int now = 0, most = 0;
  for (const auto& work : order) {
    now += work.kind == 'F' ? 1 : -1;
    most = std::max(most, now);
  }
  return most;
}

void judge_memory(const Plan& plan) {
  for (int stage = 0; stage <= plan.last(); ++stage) {
    const int keeps = alive(plan.stages[static_cast<size_t>(stage)]), may = plan.last() + 1 - stage;
    if (keeps > may)
      throw NotYet(
          plan.where(stage) + format("keeps {} micro-batches at a time, and {} {} enough", keeps, may,
                                     may == 1 ? "is" : "are"),
          "a micro-batch's backward lets its activations go: when is the earliest that it can come?");
  }
}

void judge_order(const Plan& plan) {
  for (int stage = 0; stage <= plan.last(); ++stage) judge_completeness(plan, stage);
  const int turns = Play(plan).turns(), fastest = 2 * (plan.micro_batches + plan.last());
  judge_memory(plan);
  if (turns > fastest)
    throw NotYet(
        format("{} stages, {} micro-batches: all is done after {} turns, and {} are enough; stages work one "
               "after the other that could work at once",
               plan.stages.size(), plan.micro_batches, turns, fastest),
        "what can stage 0 do while its first micro-batch is with the other stages?");
}

LOCKSTEP_JUDGE("scale.3", attempt) {
  constexpr int kShapes[][2] = {{3, 4}, {4, 6}, {4, 2}, {2, 1}};
  for (const auto& [stages, micro_batches] : kShapes) {
    const auto run = attempt.run(
        {.world = 1, .args = {std::to_string(stages), std::to_string(micro_batches)}, .alone = true});
    Plan plan{{}, micro_batches};
    for (int stage = 0; stage < stages; ++stage)
      plan.stages.push_back(read_order(run.ranks[0].text(format("stage {}", stage))));
    judge_order(plan);
    const double is = run.ranks[0].number("bubble"), ends = stages - 1,
                 wanted = ends / (micro_batches + ends);
    expect(near(is, wanted),
           format("bubble({}, {}) says {}, and a stage waits for {} of the time", stages, micro_batches,
                  shown(is), shown(wanted)),
           {{near(is, ends / micro_batches), "that is its share of the time in which it works",
             "but the whole time is work and waiting"},
            {near(is, 1 - wanted), "that is the share in which it works"}},
           "count the turns in which stage 0 works, and those until all is done");
  }
}

}  // namespace
}  // namespace lockstep::workshop
