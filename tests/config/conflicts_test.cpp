#include "trainer/config/load.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "config/support.h"
#include "lockstep/base/error.h"
#include "trainer/config/keys.h"

namespace lockstep::config {
namespace {

using test::error_of;
using test::settings_of;

TEST(Conflicts, NameKeysThatThereAre) {
  std::set<std::pair<std::string, std::string>> pairs;
  for (const auto& [one, other, why, hint] : conflicts()) {
    EXPECT_TRUE(find_key(one.key)) << one.key;
    EXPECT_TRUE(find_key(other.key)) << other.key;
    EXPECT_TRUE(pairs.emplace(std::string(one.key) + one.value, std::string(other.key) + other.value).second)
        << one.key << " and " << other.key << " are there twice";
    EXPECT_FALSE(std::string(why).empty() || std::string(hint).empty()) << one.key;
  }
}

TEST(Conflicts, AreSaidWithTheLineOfTheKeyThatIsSet) {
  const std::pair<const char*, const char*> kCases[] = {
      {"train: {accumulate: 2}\nddp: {static_graph: true}", "train.accumulate above 1 and ddp.static_graph"},
      {"ddp: {static_graph: true}\nparallel: {pipeline: 2}",
       "parallel.pipeline above 1 and ddp.static_graph"},
      {"parallel: {tensor: 2, pipeline: 2}", "parallel.tensor above 1 and parallel.pipeline above 1"},
      {"optim: {no_decay: [bias]}\nparallel: {tensor: 2}", "parallel.tensor above 1 and optim.no_decay"},
      {"train: {early_stop: 2, eval_every: 0}", "train.early_stop above 0 and train.eval_every 0"},
      {"launch: {allreduce: ring, backend: nccl}",
       "launch.allreduce other than auto and launch.backend nccl"},
      {"launch: {latency_us: 5}", "launch.latency_us above 0 and launch.allreduce auto"},
      {"train: {provoke: local_loss, mode: single}", "train.provoke and train.mode other than ddp"},
      {"train: {graph: true}\ndata: {resident: true}\nmodel: {checkpointing: true}",
       "train.graph and model.checkpointing"},
      {"train: {graph: true, trace: 5}\ndata: {resident: true}", "train.graph and train.trace above 0"},
  };
  for (const auto& [text, words] : kCases) {
    const InputError error = error_of(text);
    EXPECT_NE(std::string(error.what()).find(std::string(words) + " exclude each other: "), std::string::npos)
        << error.what();
    EXPECT_TRUE(error.where().starts_with("c.yaml:") && !error.hint().empty()) << text;
  }
}

TEST(Conflicts, OfAModeThatLeavesParallelOutAreNone) {
  EXPECT_NO_THROW(settings_of("train: {mode: single}\nparallel: {tensor: 2, pipeline: 2}"));
}

TEST(Conflicts, OfSettingsThatChangedSinceTheyWereReadAreFound) {
  auto loaded = load_settings("train: {graph: true}\ndata: {resident: true}", "c.yaml");
  EXPECT_NO_THROW(check_conflicts(loaded));
  loaded.settings.train.trace = 100;  // --trace
  EXPECT_THROW(check_conflicts(loaded), InputError);
}

}  // namespace
}  // namespace lockstep::config
