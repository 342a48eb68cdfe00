// Every judge meets a program that shows its names and nothing under them: it says so, and does not fall
// over.
#include <gtest/gtest.h>

#include "course/workshop/judge.h"
#include "lockstep/base/format.h"

namespace lockstep::workshop {
namespace {

// each rank shows each name so many times, with no number
class Empty : public Attempt {
 public:
  Empty(std::vector<std::string> names, int times) : names_(std::move(names)), times_(times) {}
  const std::string& text() const override { return nothing_; }
  const std::string& path() const override { return nothing_; }
  const std::string& folder() const override { return nothing_; }
  Run run(const RunOptions& options) override {
    Run run;
    for (int rank = 0; rank < options.world; ++rank) run.ranks.push_back({rank, {.facts = facts()}});
    return run;
  }
  Run lockstep(const std::vector<std::string>&, const RunOptions& options) override { return run(options); }
  Ending start(const std::vector<std::string>&, const std::vector<std::string>&) override { return {}; }

 private:
  std::string facts() const {
    std::string text;
    for (int i = 0; i < times_; ++i) {
      for (const auto& name : names_) text += format("{{\"name\":\"{}\",\"numbers\":[]}}\n", name);
    }
    return text;
  }
  std::vector<std::string> names_;
  int times_;
  std::string nothing_;
};

struct Case {
  const char* exercise;
  std::vector<std::string> names;
  int times = 1;  // as many rows as the judge awaits
};

const Case kCases[] = {
    {"allreduce.1", {"numbers", "sent"}, 12},
    {"allreduce.2", {"numbers", "sent"}, 12},
    {"beyond.1", {"texts", "shape", "batch", "epoch 0", "epoch 1", "epoch 2"}},
    {"beyond.2", {"seeds of run 0", "seeds of run 1", "seeds of run 2", "returns", "normalised"}},
    {"beyond.3", {"slope", "in training", "evaluation"}, 4},
    {"ddp.2", {"weight", "gradient of weight", "gradient of bias"}},
    {"ddp.3", {"rare", "common"}},
    {"distributed_data_parallel", {"first patients", "head.bias", "average"}, 5},
    {"devices.1", {"sizes", "outputs"}, 5},
    {"devices.2", {"loss", "gradient"}, 4},
    {"devices.3", {"line"}, 6},
    {"groups.1", {"mean"}},
    {"groups.2", {"slowest"}},
    {"overlap.1", {"bucket", "DDP's bucket"}, 3},
    {"resume.1", {"epoch", "order", "rate", "final"}, 4},
    {"resume.4", {"carries", "sum"}, 2},
    {"sampler.1", {"of 12", "of 10", "of 2", "of 1"}},
    {"sampler.2", {"epoch 0", "epoch 1", "epoch 2"}},
};

TEST(Judges, SayWhatIsMissingWhereRowsAreEmpty) {
  for (const auto& one : kCases) {
    SCOPED_TRACE(one.exercise);
    const auto judge = find_judge(one.exercise);
    ASSERT_NE(judge, nullptr);
    Empty attempt(one.names, one.times);
    EXPECT_THROW(judge(attempt), NotYet);
  }
}

}  // namespace
}  // namespace lockstep::workshop
