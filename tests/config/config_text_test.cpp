// Files that are no config: an error each, and nothing is waited for.
#include "trainer/config/config_text.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "config/support.h"
#include "temp_folder.h"
#include "trainer/config/keys.h"
#include "trainer/config/yaml.h"

namespace lockstep::test {
namespace {
namespace fs = std::filesystem;

class Read : public ::testing::Test {
 protected:
  static std::string refused(const std::string& path) {
    const auto error = error_from([&] { config::read_config_text(path); });
    EXPECT_FALSE(error.where().empty() || error.hint().empty()) << path;
    return error.what();
  }

  TempFolder temp_;
  fs::path folder_ = temp_.path();
};

TEST_F(Read, RefusesWhatIsNoFile) {
  EXPECT_TRUE(has(refused(folder_ / "none.yaml"), "No such file"));
  EXPECT_TRUE(has(refused(folder_), "this folder holds no config.yaml"));
  EXPECT_TRUE(has(refused("/dev/zero"), "is a device"));
  EXPECT_TRUE(has(refused(""), "cannot be read"));
  EXPECT_TRUE(has(refused(std::string(5000, 'a')), "too long"));
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(has(refused(folder_ / "pipe"), "is a pipe"));
  fs::create_symlink(folder_ / "loop", folder_ / "loop");
  refused(folder_ / "loop");
}

TEST_F(Read, GivesOfARunsFolderItsConfig) {
  fs::create_directories(folder_ / "runs/mnist");
  const auto path = temp_.write("runs/mnist/config.yaml", "train: {epochs: 3}\n");
  EXPECT_EQ(config::read_config_text(folder_ / "runs/mnist").name, path);
}

TEST_F(Read, NamesTheFileThatIsNear) {
  fs::create_directories(folder_ / "home/configs");
  temp_.write("home/configs/mnist.yaml", "");
  temp_.write("home/configs/pima.yaml", "");
  const auto before = fs::current_path();
  fs::current_path(folder_);
  ::setenv("LOCKSTEP_HOME", (folder_ / "home").c_str(), 1);
  const auto hint_for = [](const std::string& path) {
    return error_from([&] { config::read_config_text(path); }).hint();
  };
  for (const char* path :
       {"configs/mnits.yaml", "config/mnist.yaml", "configs/mnist.yml", "mnist.yaml", "mnist", "mnsit.yaml"})
    EXPECT_TRUE(has(hint_for(path), "did you mean configs/mnist.yaml? ")) << path << ": " << hint_for(path);
  EXPECT_EQ(hint_for("configs/unlike.yaml"), "check the path and its permissions");
  ::unsetenv("LOCKSTEP_HOME");
  fs::current_path(before);
}

TEST_F(Read, RefusesWhatMayNotBeRead) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const std::string path = temp_.write("secret.yaml", "x");
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  EXPECT_TRUE(has(refused(path), "Permission denied"));
}

// Settings that are written and read again are the same.

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

// Texts that are no config, or mean harm: an error each, soon, and never a crash.

namespace lockstep::config {
namespace {

using test::has;

InputError refused(const std::string& text) {
  SCOPED_TRACE(text.substr(0, 100));
  return test::error_from([&] { parse_yaml(text, "c.yaml"); });
}

void expect_refused(const std::string& text, const std::string& where, const std::string& what) {
  const InputError error = refused(text);
  EXPECT_EQ(error.where(), where) << error.what();
  EXPECT_TRUE(has(error.what(), what)) << error.what();
  EXPECT_FALSE(error.hint().empty());
}

std::string repeated(const std::string& part, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) text += part;
  return text;
}

TEST(Yaml, KeepsPlacesAndQuotes) {
  const NodePtr root = parse_yaml("a: {b: \"x\", c: [1, 2]}\n", "c.yaml");
  ASSERT_EQ(root->kind, YamlNode::Kind::map);
  const YamlNode& inner = *root->entries[0].second;
  EXPECT_EQ(inner.entries[0].second->text, "x");
  EXPECT_TRUE(inner.entries[0].second->quoted);
  EXPECT_EQ(inner.entries[1].second->items.size(), 2u);
  EXPECT_FALSE(inner.entries[1].second->items[0]->quoted);
  EXPECT_EQ(inner.entries[1].second->items[1]->place.text(), "c.yaml:1:20");
}

TEST(Yaml, RefusesWhatIsNotText) {
  expect_refused("a: {}\nb: \xFF\n", "c.yaml:2:4", "not UTF-8");
  expect_refused(std::string("a: 1\0b", 6), "c.yaml:1:5", "control character (\\x00)");
  expect_refused("a: \x1b[31m", "c.yaml:1:4", "control character (\\x1b)");
  expect_refused("\xFE\xFF\0a", "c.yaml:1:1", "not UTF-8");
  expect_refused("a: \xC0\xAF", "c.yaml:1:4", "not UTF-8");      // an overlong slash
  expect_refused("a: \xED\xA0\x80", "c.yaml:1:4", "not UTF-8");  // half of a surrogate pair
  expect_refused("a: \xE2\x82", "c.yaml:1:4", "not UTF-8");      // cut off
  expect_refused("# all\ra: 1\r", "c.yaml:1:6", "carriage return");
}

TEST(Yaml, RefusesWhatYamlRefuses) {
  for (const char* text : {"a: {b", "a: [1, 2", "a: \"x", "a: 'x", "a: b: c", "{a: 1}}", "a: *nope", "a: &",
                           "]", "a: @b", "a: `b", "a: \"\\q\"", "%YAML 9.9.9\n---\n", "? [", "a: !<"}) {
    EXPECT_TRUE(has(refused(text).where(), "c.yaml:")) << text;
  }
}

TEST(Yaml, RefusesSecondDocumentsAndTags) {
  expect_refused("a: 1\n---\nb: 2\n", "c.yaml:3:1", "a second document");
  expect_refused("a: !!int 3", "c.yaml:1:4", "a YAML tag");
  expect_refused("a: !!python/object:os.system x", "c.yaml:1:4", "a YAML tag");
  expect_refused("a: !mine {b: 1}", "c.yaml:1:4", "a YAML tag");
  EXPECT_EQ(parse_yaml("---\na: 1\n...\n", "c")->entries.size(), 1u);
}

TEST(Yaml, RefusesCycles) {
  expect_refused("a: &x [1, *x]", "c.yaml:1:4", "nested too deeply");
  expect_refused("a: &x {b: *x}", "c.yaml:1:4", "nested too deeply");
  EXPECT_THROW(parse_yaml("&x *x : 1", "c"), InputError);
}

TEST(Yaml, RefusesNestingBombs) {
  for (const std::string open : {"[", "{a: ", "- ", "? ", "- - ", "[{a: ", "- ? "})
    EXPECT_TRUE(has(refused(repeated(open, 5000)).where(), "c.yaml:1:")) << open;
  std::string stairs;
  for (size_t i = 0; i < 100; ++i) stairs += std::string(i, ' ') + "a:\n";
  expect_refused(stairs, "c.yaml:17:17", "nested too deeply");
}

// Each level names the one below ten times: 10^12 nodes in all.
TEST(Yaml, RefusesABombOfAliases) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i <= 12; ++i) {
    const std::string below = "*a" + std::to_string(i - 1);
    const std::string name = "a" + std::to_string(i);
    bomb += name + ": &" + name + " [" + repeated(below + ", ", 9) + below + "]\n";
  }
  expect_refused(bomb, "c.yaml:1:16", "too many values");
}

}  // namespace
}  // namespace lockstep::config
