// Settings that are written and read again are the same, and no damaged text does more than fail.
#include <random>

#include "config/support.h"
#include "trainer/config/keys.h"
#include "trainer/config/schema.h"
#include "trainer/config/write.h"

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

TEST(RoundTrip, OfWhatIsChangedHoldsAlone) {
  const auto loaded = config::load_settings(
      "optim: {name: adamw, lr: 0.01, momentum: 0.9, weight_decay: default}\nrun: {name: mine}\n", "c.yaml",
      {"train.epochs=7", "data.workers=3"});
  const auto text = config::changed_yaml(loaded);
  EXPECT_TRUE(has(text, "  name: mine") && has(text, "# c.yaml:") && has(text, "  epochs: 7")) << text;
  EXPECT_TRUE(has(text, "# --set")) << text;
  EXPECT_EQ(config::load_settings(text, "changed.yaml").settings, loaded.settings);
  EXPECT_EQ(config::changed_yaml(config::load_settings(config::to_yaml(Settings{}), "all.yaml")), "");
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

std::string damaged(std::string text, std::mt19937_64& random) {
  static const std::string bytes = "{}[]:,#&*!|>'\"%@`?-\n\t \r\\$~<0aeE.\x01\x7f\x80\xff\xc3";
  for (size_t left = 1 + random() % 4; left > 0 && !text.empty(); --left) {
    const size_t at = random() % text.size();
    switch (random() % 5) {
      case 0:
        text[at] = bytes[random() % bytes.size()];
        break;
      case 1:
        text.insert(at, 1, bytes[random() % bytes.size()]);
        break;
      case 2:
        text.erase(at, 1 + random() % 10);
        break;
      case 3:
        text.insert(at, text.substr(random() % text.size(), random() % 40));
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

TEST(Fuzz, DamagedConfigsLoadOrFailCleanly) {
  std::mt19937_64 random(20260);
  const std::string whole = kConfig;
  const std::string resolved = config::to_yaml(settings_of(kConfig));
  int loaded = 0, failed = 0;
  for (int i = 0; i < 6000; ++i) {
    const std::string text = damaged(i % 2 ? whole : resolved, random);
    try {
      const Settings settings = config::load_settings(text, "f.yaml", {}, {{"USER_DIR", "/x"}}).settings;
      ++loaded;
      EXPECT_EQ(config::load_settings(config::to_yaml(settings), "again.yaml").settings, settings) << text;
    } catch (const InputError& error) {
      ++failed;
      EXPECT_FALSE(error.where().empty()) << error.what();
      EXPECT_FALSE(error.hint().empty()) << error.what();
    }
  }
  EXPECT_GT(loaded, 100);
  EXPECT_GT(failed, 100);
}

TEST(Fuzz, DamagedSetsLoadOrFailCleanly) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 4000; ++i) {
    const auto& key = config::keys()[random() % config::keys().size()];
    const std::string set = damaged(key.path + "=[1, \"a\", 0.5e3]", random);
    try {
      settings_of("", {set});
    } catch (const InputError& error) {
      EXPECT_TRUE(error.where().starts_with("--set")) << error.where() << " " << set;
    }
  }
}

}  // namespace
}  // namespace lockstep::test
