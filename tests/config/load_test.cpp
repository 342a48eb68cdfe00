#include "trainer/config/load.h"

#include <filesystem>

#include "config/support.h"
#include "trainer/config/config_text.h"
#include "trainer/config/keys.h"

namespace lockstep::test {
namespace {

using namespace std::chrono_literals;

TEST(Load, GivesDefaultsForNothing) {
  for (const char* text :
       {"", "\n\n", "# only a comment\n", "---\n", "~", "run:\ntrain:\n", "\xEF\xBB\xBF"}) {
    EXPECT_EQ(settings_of(text), Settings{}) << text;
  }
}

TEST(Load, ReadsEveryTypeOfValue) {
  const Settings settings = settings_of(R"(
run: {name: "my run", seed: 7}
launch:
  timeout: 1h30m
  join_timeout: 2.5
task:
  name: open
  features: [age, 3, "b c"]
  mean: [1, 2.5]
  header: FALSE
  options: {depth: 3, name: x}
model: {hidden: [64, 32]}
ddp: {bucket_cap_mb: 12.5}
optim: {lr: 1e-2, betas: [0.8, 0.95], weight_decay: 1.0e-4}
)");
  EXPECT_EQ(settings.run.name, "my run");
  EXPECT_EQ(settings.run.seed, 7);
  EXPECT_EQ(settings.launch.timeout, 90min);
  EXPECT_EQ(settings.launch.join_timeout, 2500ms);
  EXPECT_EQ(settings.task.features, (std::vector<std::string>{"age", "3", "b c"}));
  EXPECT_EQ(settings.task.mean, (std::vector<double>{1, 2.5}));
  EXPECT_FALSE(settings.task.header);
  EXPECT_EQ(settings.task.options, (std::map<std::string, std::string>{{"depth", "3"}, {"name", "x"}}));
  EXPECT_EQ(settings.model.hidden, (std::vector<int64_t>{64, 32}));
  EXPECT_EQ(settings.ddp.bucket_cap_mb, 12.5);
  EXPECT_EQ(settings.optim.lr, 0.01);
  EXPECT_EQ(settings.optim.betas, (std::array<double, 2>{0.8, 0.95}));
  EXPECT_EQ(settings.optim.weight_decay, 1e-4);
}

TEST(Load, ReadsAnchorsAndWindowsLines) {
  EXPECT_EQ(settings_of("optim: {lr: &rate 0.5}\nschedule: {name: one_cycle, max_lr: *rate}").schedule.max_lr,
            0.5);
  EXPECT_EQ(settings_of("train:\r\n  epochs: 3\r\n").train.epochs, 3);
  EXPECT_EQ(error_of("train:\r\n  epochs: x\r\n").where(), "c.yaml:2:11");
}

TEST(Load, ExpandsVariablesInPathsAlone) {
  const Settings settings = settings_of(
      "run: {dir: \"${USER_DIR}/runs\", name: \"j${NOPE:-1}\"}\ntask: {name: csv, label: \"${USER_DIR}\"}");
  EXPECT_EQ(settings.run.dir, "/scratch/me/runs");
  EXPECT_EQ(settings.run.name, "j1");
  EXPECT_EQ(settings.task.label, "${USER_DIR}");
}

TEST(Load, KnowsWhereEachValueCameFrom) {
  const config::Loaded loaded =
      config::load_settings("train:\n  epochs: 3\n  accumulate: 2\n", "c.yaml", {"train.accumulate=4"});
  EXPECT_EQ(loaded.origins.size(), config::keys().size());
  EXPECT_EQ(loaded.origins.at("train.epochs").text, "c.yaml:2:3");
  EXPECT_EQ(loaded.origins.at("train.accumulate").kind, config::Origin::set);
  EXPECT_EQ(loaded.origins.at("train.accumulate").text, "--set");
  EXPECT_EQ(loaded.origins.at("optim.lr").kind, config::Origin::by_default);
}

TEST(Set, OverrulesTheFileAndTheLastWins) {
  EXPECT_EQ(settings_of("train: {epochs: 3}", {"train.epochs=4", "train.epochs=5"}).train.epochs, 5);
  EXPECT_EQ(settings_of("", {"optim.betas=[0.5, 0.75]"}).optim.betas[1], 0.75);
  EXPECT_EQ(settings_of("", {"task.images=[a, b]"}).task.images.size(), 2u);
  EXPECT_EQ(settings_of("", {"task.delimiter=;"}).task.delimiter, ";");
  for (const char* tab : {R"(task.delimiter=\t)", "task.delimiter=\t"})
    EXPECT_EQ(settings_of("", {tab}).task.delimiter, "\t") << tab;
  EXPECT_EQ(settings_of("", {"run.name=a: b # c=d"}).run.name, "a: b # c=d");
  EXPECT_EQ(settings_of("", {"data.stage="}).data.stage, "");
  EXPECT_EQ(settings_of("", {"run.dir=${USER_DIR}"}).run.dir, "/scratch/me");
  EXPECT_EQ(settings_of("ddp: {bucket_cap_mb: 5}", {"ddp.bucket_cap_mb=default"}).ddp.bucket_cap_mb,
            std::nullopt);
  EXPECT_EQ(settings_of("task: {name: open, options: {a: 1}}", {"task.options.b=x y"}).task.options.size(),
            2u);
}

TEST(Resolve, GivesWeightDecayAsPythonDoes) {
  EXPECT_EQ(settings_of("optim: {name: sgd}").optim.weight_decay, 0);
  EXPECT_EQ(settings_of("optim: {name: adam}").optim.weight_decay, 0);
  EXPECT_EQ(settings_of("optim: {name: adamw}").optim.weight_decay, 0.01);
  EXPECT_EQ(settings_of("optim: {name: adamw, weight_decay: default}").optim.weight_decay, 0.01);
  EXPECT_EQ(settings_of("optim: {name: adamw, weight_decay: 0}").optim.weight_decay, 0);
  EXPECT_EQ(settings_of("optim: {name: adamw, weight_decay: 0.5}", {"optim.weight_decay=default"})
                .optim.weight_decay,
            0.01);
}

TEST(Together, RefusesKeysThatNeedOthers) {
  for (const char* text :
       {"optim: {nesterov: true, momentum: 0}", "schedule: {name: one_cycle}", "model: {name: torchscript}",
        "schedule: {name: one_cycle, max_lr: 1, base_momentum: 0.9, max_momentum: 0.8}", "run: {name: ..}",
        "run: {name: a/b}", "run: {name: \"\"}", "task: {name: csv, normalize: mean_std}",
        "task: {name: csv, normalize: mean_std, mean: [1, 2], std: [1]}",
        "task: {name: csv, delimiter: \"\"}"}) {
    EXPECT_THROW(settings_of(text), InputError) << text;
  }
}

TEST(Unused, IsSaidWithItsName) {
  ASSERT_EQ(warnings_of("optim: {name: adam, momentum: 0.9}").size(), 1u);
  EXPECT_EQ(warnings_of("optim: {name: adam, momentum: 0.9}")[0],
            "optim.momentum (c.yaml:1:21) has no effect, because optim.name is adam");
  EXPECT_EQ(warnings_of("schedule: {gamma: 0.5, T_max: 3}")[0],
            "schedule.gamma, schedule.T_max have no effect, because schedule.name is none");
  EXPECT_EQ(warnings_of("task: {file: x.csv}").size(), 1u);
  EXPECT_EQ(warnings_of("ddp: {static_graph: true}\ntrain: {mode: single}").size(), 1u);
  EXPECT_TRUE(
      warnings_of(config::to_yaml(config::load_settings("optim: {name: adam}", "c.yaml").settings, {}))
          .empty());
}

TEST(Shipped, ConfigsLoadWithoutAWarning) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("configs")) {
    if (entry.path().extension() != ".yaml") continue;
    const config::ConfigText config = config::read_config_text(entry.path());
    EXPECT_EQ(config::load_settings(config.text, config.name).warnings, std::vector<std::string>{})
        << entry.path();
    ++count;
  }
  EXPECT_GT(count, 0u);
}

}  // namespace
}  // namespace lockstep::test

// What a run left in its config.yaml, and what makes another run of it.

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
                   "optim.warp (was a list of 2 items, is not set)"}));
}

}  // namespace
}  // namespace lockstep::config
