// What a run left in its config.yaml, and what makes another run of it.
#include "trainer/config/past_config.h"

#include "config/support.h"
#include "trainer/config/config_text.h"
#include "trainer/config/keys.h"

namespace lockstep::config {
namespace {

using Texts = std::vector<std::string>;

TEST(PastConfig, NamesWhatDiffers) {
  Settings now;
  now.optim.lr = 0.2;
  now.model.hidden = {8, 8};
  now.ddp.bucket_cap_mb = 5;
  EXPECT_EQ(differences({}, now), (Texts{"ddp.bucket_cap_mb (was default, is 5)",
                                         "model.hidden (was [], is [8, 8])", "optim.lr (was 0.01, is 0.2)"}));
}

TEST(PastConfig, OnlyALongerRunIsTheSame) {
  struct Case {
    int64_t epochs, steps;
    bool same;
  };
  for (const auto& [epochs, steps, same] :
       {Case{5, 100, true}, {6, 100, true}, {5, 101, true}, {5, 0, true}, {4, 100, false}, {5, 99, false}}) {
    Settings then, now;
    then.train.max_steps = 100;
    now.train.epochs = epochs;
    now.train.max_steps = steps;
    EXPECT_EQ(differences({then}, now).empty(), same) << epochs << " epochs, " << steps << " steps";
  }
  Settings limited;
  limited.train.max_seconds = 10;
  EXPECT_FALSE(differences({}, limited).empty()) << "there was no limit";
}

TEST(PastConfig, WhereItIsStartedDoesNotMatter) {
  Settings now;
  now.launch = {.launcher = "none", .backend = "mpi", .device = "cuda"};
  now.run.dir = "/elsewhere";
  now.data.stage = "/local";
  EXPECT_EQ(differences({}, now), Texts{});
  now.data.root = "/other/data";  // may well be other data
  EXPECT_EQ(differences({}, now), Texts{"data.root (was \"\", is /other/data)"});
}

TEST(PastConfig, OfAnOlderLockstepHasTodaysDefaults) {
  const auto past = read_past_config("run: {name: x}\noptim: {name: adamw}\n", "config.yaml");
  Settings now;
  now.run.name = "x";
  now.optim.name = "adamw";
  now.optim.weight_decay = 0.01;  // as `default` is resolved
  EXPECT_EQ(differences(past, now), Texts{});
}

Settings table(const std::string& label, const std::string& normalize_label = "auto") {
  Settings settings;
  settings.task.name = "csv";
  settings.task.label = label;
  settings.task.normalize_label = normalize_label;
  return settings;
}

TEST(PastConfig, WhatARunHasSettledIsTakenOver) {
  auto open = table("");
  take_over({table("kind", "standard")}, open);
  EXPECT_EQ(open, table("kind", "standard"));
  auto before = table("");
  take_over({table("")}, before);
  EXPECT_EQ(before, table("-1", "none")) << "the last column, and the numbers themselves, as 0.1 did";
  EXPECT_EQ(differences({table("")}, before), Texts{});
  auto asked = table("other", "standard");
  take_over({table("kind", "none")}, asked);
  EXPECT_EQ(asked, table("other", "standard"));
  auto another = table("");
  take_over({Settings()}, another);
  EXPECT_EQ(another, table("")) << "of another task";
  EXPECT_EQ(differences({table("")}, table("kind", "none")), Texts{"task.label (was \"-1\", is kind)"});
}

TEST(PastConfig, OfANewerLockstepSaysWhatIsNotKnown) {
  const auto past = read_past_config(
      "optim: {name: lion, warp: [1, 2]}\nlaunch: {carrier: pigeon, backend: smoke}\nmoon: {phase: full}\n",
      "config.yaml");
  EXPECT_EQ(differences(past, {}),
            (Texts{"moon.phase (was full, is not set)", "optim.name (was lion, is sgd)",
                   "optim.warp (was a list of 2, is not set)"}));
}

}  // namespace
}  // namespace lockstep::config
