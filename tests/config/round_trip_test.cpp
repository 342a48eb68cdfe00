// Settings that are written and read again are the same.
#include <random>

#include "config/support.h"
#include "trainer/config/config_text.h"
#include "trainer/config/keys.h"

namespace lockstep::test {
namespace {

const char* const kConfig = R"(run: {name: mnist, dir: "${USER_DIR}/r", seed: 3}
launch: {launcher: auto, backend: gloo, device: cpu, join_timeout: 60s, timeout: 1h30m}
task:
  name: open
  features: [a, "b c", '3']
  mean: [1, -2.5e-3]
  std: &s [1, 2]
  normalize: mean_std
  options: {x: 1, "y z": "q"}
data: {root: data/mnist, batch_size: 128, shuffle: true, stage: ""}  # a comment
ddp: {bucket_cap_mb: default, comm_hook: none}
optim: {name: adamw, lr: 1.0e-3, betas: [0.9, 0.999]}
schedule: {name: one_cycle, max_lr: 0.1}
train: {epochs: 5, accumulate: 1, clip_norm: 0.5}
checkpoint: {keep: 3, before_deadline: 250ms}
)";

void expect_same_again(const Settings& settings) {
  const std::string text = config::to_yaml(settings);
  EXPECT_EQ(config::load_settings(text, "resolved.yaml").settings, settings) << text;
}

TEST(RoundTrip, HoldsForDefaultsAndForAConfig) {
  expect_same_again({});
  expect_same_again(settings_of(kConfig));
}

TEST(RoundTrip, HoldsForTextsThatYamlCouldMisread) {
  for (const std::string text :
       {"",     "no",         "yes",  "~",    "null",      "true",        "1e3",         "0x1",     "a: b",
        "a #b", "\"quoted\"", "it's", "a\\b", "tab\there", "line\nbreak", "caf\xC3\xA9", "*a",      "&a",
        "!a",   "%a",         "@a",   "- a",  "[a]",       "{a}",         " a ",         "$HOME",   "${X}",
        "$$",   "?",          "-",    ".",    "=",         "<<",          "2001-01-01",  "12:30:45"}) {
    Settings settings;
    settings.task.name = "open";
    settings.task.file = settings.task.label = text;
    settings.task.features = {text, text};
    settings.task.options[text.empty() ? "key" : text] = text;
    settings.data.root = text;
    expect_same_again(settings);
  }
}

TEST(RoundTrip, HoldsForEveryBitOfADouble) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    Settings settings;
    settings.optim.lr = std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 1000) - 900);
    settings.train.clip_norm = std::generate_canonical<double, 53>(random);
    settings.launch.timeout = std::chrono::milliseconds(1 + random() % 1'000'000'000);
    expect_same_again(settings);
  }
}

TEST(Write, ShowsOriginsAndStaysAConfig) {
  const config::Loaded loaded =
      config::load_settings(kConfig, "c.yaml", {"train.epochs=9"}, {{"USER_DIR", "/x"}});
  const std::string text = config::to_yaml(loaded.settings, loaded.origins);
  EXPECT_TRUE(has(text, "  epochs: 9                             # --set\n")) << text;
  EXPECT_TRUE(has(text, "# c.yaml:1:7\n"));
  EXPECT_TRUE(has(text, "# default\n"));
  EXPECT_EQ(config::load_settings(text, "again.yaml").settings, loaded.settings);
}

}  // namespace
}  // namespace lockstep::test
