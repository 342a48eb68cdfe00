// Each mistake: where it is said to be, what is said, and that something is said of what to do.
#include "config/support.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "trainer/config/keys.h"
#include "trainer/config/load.h"

namespace lockstep::test {
namespace {

struct Mistake {
  const char* text;
  const char* where;
  const char* what;
  const char* hint;
};

const Mistake kMistakes[] = {
    {"train:\n  epoch: 3", "c.yaml:2:3", "unknown key train.epoch", "did you mean train.epochs?"},
    {"trian: {epochs: 3}", "c.yaml:1:1", "unknown section trian", "did you mean train?"},
    {"train.epochs: 3", "c.yaml:1:1", "dotted keys are not supported in a config file: train.epochs",
     "write it nested: train: {epochs: ...}"},
    {"lr: 0.1", "c.yaml:1:1", "unknown section lr", "did you mean optim.lr?"},
    {"train: {lr: 0.1}", "c.yaml:1:9", "unknown key train.lr", "did you mean optim.lr?"},
    {"train: {epochs: 3, epochs: 4}", "c.yaml:1:20", "duplicate key epochs", "c.yaml:1:9"},
    {"train: {epochs: 3}\ntrain: {epochs: 3}", "c.yaml:2:1", "duplicate key train", "c.yaml:1:1"},
    {"train: {epochs: three}", "c.yaml:1:17", "train.epochs must be an integer from 1 to ", ""},
    {"train: {epochs: 1e3}", "c.yaml:1:17", "(got 1e3)", ""},
    {"train: {epochs: \"3\"}", "c.yaml:1:17", "(got the text \"3\")", "without quotes"},
    {"train: {epochs: 0}", "c.yaml:1:17", "(got 0)", ""},
    {"train: {epochs: 99999999999999999999}", "c.yaml:1:17", "(got 99999999999999999999)", ""},
    {"train: {epochs: [3]}", "c.yaml:1:17", "(got a list of 1 item)", ""},
    {"train: {epochs: {a: b}}", "c.yaml:1:17", "(got a map of keys)", ""},
    {"train: {epochs: }", "c.yaml:1:17", "(got no value)", "remove the line"},
    {"train:\n  epochs:\n  mode: ddp\n", "c.yaml:3:3", "(got no value)", "remove the line"},
    {"train: {epochs: null}", "c.yaml:1:17", "(got no value)", ""},
    {"data: {stage: ~}", "c.yaml:1:15", "(got no value)", "write \"\""},
    {"data: {shuffle: yes}", "c.yaml:1:17", "data.shuffle must be true or false (got yes)", ""},
    {"data: {shuffle: off}", "c.yaml:1:17", "(got off)", ""},
    {"data: {shuffle: 1}", "c.yaml:1:17", "(got 1)", ""},
    {"data: {shuffle: \"true\"}", "c.yaml:1:17", "(got the text", "without quotes"},
    {"optim: {lr: fast}", "c.yaml:1:13", "optim.lr must be a number of at least 0 (got fast)", ""},
    {"optim: {lr: .nan}", "c.yaml:1:13", "(got .nan)", ""},
    {"optim: {lr: -0.1}", "c.yaml:1:13", "(got -0.1)", ""},
    {"optim: {name: adma}", "c.yaml:1:15", "one of sgd, adam, adamw (got adma)", "did you mean adam?"},
    {"launch: {device: gpu}", "c.yaml:1:18", "cuda (got gpu)", "use cuda"},
    {"optim: {betas: [0.9]}", "c.yaml:1:16", "a list of two numbers", ""},
    {"optim: {betas: [0.9, 1.0]}", "c.yaml:1:22", "below 1 (got 1.0)", ""},
    {"optim: {betas: 0.9}", "c.yaml:1:16", "(got 0.9)", "in brackets"},
    {"model: {hidden: [64, 0]}", "c.yaml:1:22", "(got 0)", ""},
    {"model: {hidden: [64, [3]]}", "c.yaml:1:22", "(got a list of 1 item)", ""},
    {"task: {images: [a, ~]}", "c.yaml:1:20", "(got no value)", ""},
    {"task: {options: {a: 1, a: 2}}", "c.yaml:1:24", "duplicate key a", ""},
    {"task: {options: {a: [1]}}", "c.yaml:1:21", "(got a list of 1 item)", ""},
    {"ddp: {bucket_cap_mb: -1}", "c.yaml:1:22", "of at least 0, or default (got -1)", ""},
    {"ddp: {bucket_cap_mb: big}", "c.yaml:1:22", "or default (got big)", ""},
    {"launch: {timeout: 5x}", "c.yaml:1:19", "a duration such as 60s", "use the units"},
    {"launch: {timeout: 0}", "c.yaml:1:19", "(got 0)", ""},
    {"run: {dir: \"${NOPE}\"}", "c.yaml:1:12", "run.dir needs the environment variable NOPE", "set NOPE"},
    {"run: {dir: $HOME}", "c.yaml:1:12", "the '$' in '$HOME'", "${NAME}"},
    {"train: 3", "c.yaml:1:8", "section train must be a map of keys (got 3)", "train: {"},
    {"train: [3]", "c.yaml:1:8", "section train must be a map", ""},
    {"- a\n- b", "c.yaml:1:1", "a config must be a map of sections (got a list of 2 items)", "train:"},
    {"just words", "c.yaml:1:1", "a config must be a map of sections (got just words)", ""},
    {"[a]: {b: c}", "c.yaml:1:1", "a key must be a word (got a list of 1 item)", ""},
    {"train: {[a]: 3}", "c.yaml:1:9", "a key must be a word", ""},
    {"<<: {epochs: 3}", "c.yaml:1:1", "merge keys", "write the keys out"},
    {"train: {<<: {epochs: 3}}", "c.yaml:1:9", "unknown key train.<<", ""},
    {"learning_rate: 0.1", "c.yaml:1:1", "unknown section learning_rate", "did you mean optim.lr?"},
    {"optim: {learning-rate: 0.1}", "c.yaml:1:9", "unknown key optim.learning-rate",
     "did you mean optim.lr?"},
    {"train: {batch: 8}", "c.yaml:1:9", "unknown key train.batch", "did you mean data.batch_size?"},
    {"epcohs: 8", "c.yaml:1:1", "unknown section epcohs", "did you mean train.epochs?"},
    {"optimizer: adam", "c.yaml:1:1", "unknown section optimizer", "did you mean optim.name?"},
};

TEST(Mistakes, AreSaidWithPlaceAndRemedy) {
  for (const Mistake& mistake : kMistakes) {
    const InputError error = error_of(mistake.text);
    EXPECT_EQ(error.where(), mistake.where) << mistake.text << "\n" << error.what();
    EXPECT_TRUE(has(error.what(), mistake.what)) << mistake.text << "\n" << error.what();
    EXPECT_TRUE(has(error.hint(), mistake.hint)) << mistake.text << "\n" << error.hint();
    EXPECT_FALSE(error.hint().empty()) << mistake.text;
  }
}

TEST(Mistakes, AreAllSaidAtOnce) {
  const auto error = error_of("train:\n  epoch: 3\n  mode: dpd\ntrian: {}\noptim: {lr: -1, name: adma}\n",
                              {"run.nmae=x", "data.workers=two"});
  const std::string text = describe(error);
  EXPECT_TRUE(has(text,
                  "7 mistakes in the config\n  1. unknown key train.epoch\n     --> c.yaml:2:3\n"
                  "     hint: did you mean train.epochs?"))
      << text;
  const std::string in_order[] = {"2. train.mode must be",   "3. unknown section trian",
                                  "4. optim.lr must be",     "5. unknown key run.nmae",
                                  "6. data.workers must be", "7. optim.name must be"};
  for (const auto& part : in_order) EXPECT_TRUE(has(text, "\n  " + part)) << part << text;
  EXPECT_EQ(error.exit_status(), kBadInput);
}

TEST(Mistakes, OfWhatDependsOnEachOtherAreSaidAtOnceToo) {
  const std::string text =
      describe(error_of("train: {early_stop: 2, eval_every: 0, accumulate: 2}\nddp: {static_graph: true}\n"));
  EXPECT_TRUE(has(text, "2 mistakes")) << text;
  EXPECT_TRUE(has(text, "cannot be combined") && has(text, "needs evaluations")) << text;
}

TEST(Mistakes, ThatFollowFromAnotherAreNotSaid) {
  const auto error = error_of("train: {accumulate: 2, epoch: 1}\nddp: {static_graph: true}\n");
  EXPECT_STREQ(error.what(), "unknown key train.epoch");
}

}  // namespace
}  // namespace lockstep::test

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
      {"train: {accumulate: 2}\nddp: {static_graph: true}",
       "train.accumulate: 2 cannot be combined with ddp.static_graph: true, because "},
      {"ddp: {static_graph: true}\nparallel: {pipeline: 2}",
       "parallel.pipeline: 2 cannot be combined with ddp.static_graph: true, because "},
      {"parallel: {tensor: 2, pipeline: 2}",
       "parallel.tensor: 2 cannot be combined with parallel.pipeline: 2, because "},
      {"optim: {no_decay: [bias]}\nparallel: {tensor: 2}",
       "parallel.tensor: 2 cannot be combined with optim.no_decay: [bias], because "},
      {"train: {early_stop: 2, eval_every: 0}",
       "train.early_stop: 2 cannot be combined with train.eval_every: 0, because "},
      {"launch: {allreduce: ring, backend: nccl}",
       "launch.allreduce: ring cannot be combined with launch.backend: nccl, because "},
      {"launch: {latency_us: 5}",
       "launch.latency_us: 5 cannot be combined with launch.allreduce: auto, because "},
      {"train: {provoke: local_loss, mode: single}",
       "train.provoke: local_loss cannot be combined with train.mode: single, because "},
      {"train: {as_world: 2, layout: auto}",
       "train.as_world: 2 cannot be combined with train.layout: auto, because "},
      {"train: {graph: true}\ndata: {resident: true}\nmodel: {checkpointing: true}",
       "train.graph: true cannot be combined with model.checkpointing: true, because "},
  };
  for (const auto& [text, words] : kCases) {
    const InputError error = error_of(text);
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
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
