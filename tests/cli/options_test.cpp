#include "trainer/cli/options.h"

#include <optional>
#include <tuple>

#include "lockstep/base/log.h"
#include "support.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/failure.h"

namespace lockstep::cli {
namespace {

using test::has;
using Words = std::vector<std::string>;

class CliOptions : public ::testing::Test {
 protected:
  void SetUp() override {
    sets_.clear();
    options_.emplace("train", "trains", std::vector<std::string>{"lockstep train a.yaml"});
    options_->positional("CONFIG.yaml", config_, "the config");
    options_->positional("MORE", more_, "more", false);
    options_->add("resume", resume_, "auto|PATH", "go on");
    options_->add("set", sets_, "KEY=VALUE", "override");
    options_->add("steps", steps_, "A-LONG-PLACEHOLDER", "how many");
    options_->add("share", share_, "X", "how much");
    options_->add("launcher", launcher_, "NAME", "who started us");
    options_->flag("dry-run", dry_run_, "only look");
    options_->note("actions", "go", "goes");
    options_->note("actions", "come", "comes");
  }
  bool parse(const std::string& line) { return options_->parse(test::words_of(line)); }
  std::string refused(const std::string& line) {
    SetUp();  // a command line is parsed once
    return test::refusal<UsageError>([&] { parse(line); });
  }

  std::optional<Options> options_;
  std::string config_, more_, resume_, launcher_;
  Words sets_;
  int64_t steps_ = 5;
  double share_ = 0;
  bool dry_run_ = false;
};

TEST_F(CliOptions, TakeValuesOfEachKind) {
  ASSERT_TRUE(parse("--set x=1 a.yaml --steps -7 --share=0.25 --set=y=2 --dry-run -- --resume"));
  EXPECT_EQ(config_, "a.yaml");
  EXPECT_EQ(more_, "--resume");
  EXPECT_EQ(sets_, (Words{"x=1", "y=2"}));
  EXPECT_EQ(steps_, -7);
  EXPECT_EQ(share_, 0.25);
  EXPECT_TRUE(dry_run_);
  EXPECT_TRUE(options_->given("steps"));
  EXPECT_FALSE(options_->given("resume"));
}

TEST_F(CliOptions, HelpIsPrintedWhateverElseIsMissing) {
  bool goes_on = true;
  const auto text = test::printed([&] { goes_on = parse("--help --steps 9"); });
  EXPECT_FALSE(goes_on);
  EXPECT_EQ(steps_, 5);
  EXPECT_TRUE(has(text, "lockstep train: trains\n\nusage: lockstep train CONFIG.yaml [MORE] [options]\n"));
  EXPECT_TRUE(has(text, "\n  --resume auto|PATH        go on\n"));
  EXPECT_TRUE(has(text, "\n  --steps A-LONG-PLACEHOLDER\n                            how many\n"));
  EXPECT_TRUE(has(text, "\nactions:\n  go                        goes\n  come                      comes\n"));
  EXPECT_TRUE(has(text, "\nexamples:\n  lockstep train a.yaml\n"));
}

TEST_F(CliOptions, AKeyOfTheConfigIsToldFromAnOption) {
  const std::pair<const char*, const char*> rows[] = {
      {"a --epochs 3", "did you mean --set train.epochs=VALUE? "},
      {"a --train.epochs=3", "did you mean --set train.epochs=3? "},
      {"a --learning-rate=1e-3", "did you mean --set optim.lr=1e-3? "},
      {"a --batch_size", "did you mean --set data.batch_size=VALUE? "},
      {"a --model=mlp", "did you mean --set model.name=mlp? "},
      {"a --dry_run", "did you mean --dry-run? "},
      {"a b train.epochs=3", "did you mean --set train.epochs=3? "}};
  for (const auto& [line, meant] : rows) EXPECT_TRUE(has(refused(line), meant)) << line << refused(line);
  EXPECT_EQ(refused("a b=c --set train.epochs=3"), "");  // a file may be called so
  Options other("inspect", "looks", {});
  EXPECT_EQ(test::refusal<UsageError>([&] {
              other.parse({"--epochs", "3"});
            }),
            "unknown option '--epochs' / lockstep inspect / see lockstep inspect --help");
}

TEST_F(CliOptions, WrongUseSaysWhatIsWrong) {
  const std::string see = "see lockstep train --help", integer = "pass an integer, for example --steps 2";
  const std::tuple<const char*, std::string, std::string> rows[] = {
      {"", "missing argument CONFIG.yaml", see},
      {"a b \x1b[31m", "unexpected argument: '\\x1b[31m'", see},  // no terminal obeys it
      {"--resume a.yaml", "missing argument CONFIG.yaml: --resume took the file's name as its value", see},
      {"--set a.yaml", "missing argument CONFIG.yaml: --set took the file's name as its value", see},
      {"a --steps", "--steps needs a value: A-LONG-PLACEHOLDER", see},
      {"a --steps --dry-run", "--steps needs an integer, not '--dry-run'", integer},
      {"a --steps two", "--steps needs an integer, not 'two'", integer},
      {"a --steps 1e3", "--steps needs an integer, not '1e3'", integer},
      {"a --share half", "--share needs a number, not 'half'", "pass a number, for example --share 0.5"},
      {"a --resume x --resume y", "--resume is given twice", "remove one of them"},
      {"a --dry-run=no", "--dry-run takes no value", "remove the value"}};
  for (const auto& [line, what, hint] : rows) EXPECT_EQ(refused(line), what + " / lockstep train / " + hint);
}

TEST_F(CliOptions, SayHowMuchIsLogged) {
  const std::pair<const char*, const char*> rows[] = {{"a", "info\nwarning: warning\n"},
                                                      {"a -q", "warning: warning\n"},
                                                      {"a --quiet", "warning: warning\n"},
                                                      {"a -v", "debug: debug\ninfo\nwarning: warning\n"},
                                                      {"a --log error", ""}};
  for (const auto& [line, wanted] : rows) {
    ::testing::internal::CaptureStderr();
    Options options("train", "trains");
    std::string config;
    options.positional("CONFIG.yaml", config, "the config");
    log::set_level(log::Level::info);
    options.parse(test::words_of(line));
    log::debug("debug"), log::info("info"), log::warning("warning");
    log::set_level(log::Level::info);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), wanted) << line;
  }
  EXPECT_TRUE(has(refused("a -q -v"), "use one of them"));
  EXPECT_TRUE(has(refused("a -q --log info"), "use one of them"));
}

TEST_F(CliOptions, AnUnknownLauncherIsRefusedBeforeAnybodyJoins) {
  const std::string what = "unknown launcher 'sloorm' / ", hint = " / choose one of auto, torchrun, ";
  EXPECT_TRUE(has(refused("a --launcher sloorm"), what + "--launcher" + hint));
  EXPECT_TRUE(has(refused("a --set launch.launcher=sloorm"), what + "--set launch.launcher" + hint));
  EXPECT_EQ(refused("a --launcher slurm --set launch.launcher=none"), "");
}

TEST(CliJobOptions, DescribeAJob) {
  cluster::JobRequest job;
  Options options("submit", "submits");
  add_job_options(options, job);
  options.parse(
      test::words_of("--site gadi --nodes 2 --gpus-per-node 4 --ranks-per-node 8 --cpus-per-rank 3 "
                     "--time 1h30m --queue gpu --account a00 --storage home --name mine "
                     "--set optim.lr=0.5"));
  EXPECT_EQ((std::vector{job.nodes, job.gpus_per_node, job.ranks_per_node, job.cores_per_rank}),
            (std::vector<int64_t>{2, 4, 8, 3}));
  EXPECT_EQ((std::vector{job.site, job.time, job.queue, job.account, job.storage, job.name, job.sets.at(0)}),
            (std::vector<std::string>{"gadi", "1h30m", "gpu", "a00", "home", "mine", "optim.lr=0.5"}));
}

}  // namespace
}  // namespace lockstep::cli
