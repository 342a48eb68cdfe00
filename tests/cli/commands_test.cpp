// Every command as `lockstep NAME` calls it: its help, and what it refuses before it begins.
#include "trainer/cli/commands.h"

#include <set>

#include "support.h"
#include "trainer/cli/failure.h"

namespace lockstep::cli {
namespace {

using test::call;
using test::has;

TEST(CliCommands, EachHasALineOfItsOwnAndHelp) {
  std::set<std::string> seen;
  for (const auto& [name, summary, run] : commands()) {
    EXPECT_TRUE(seen.insert(name).second && seen.insert(summary).second) << name;
    EXPECT_FALSE(summary.empty() || summary.size() > 67 || summary.ends_with(".")) << name;  // of 80 columns
    const auto text = test::printed([&, run = run] { EXPECT_EQ(run({"--help"}), kDone); });
    EXPECT_TRUE(has(text, "lockstep " + name + ": "));
    EXPECT_TRUE(has(text, "\n\nusage: lockstep " + name + " "));
    EXPECT_TRUE(has(text, "\n  -h, --help "));
    EXPECT_TRUE(has(text, "\nexamples:\n  "));
  }
}

TEST(CliCommands, EachRefusesAnOptionThatNobodyKnows) {
  for (const auto& [name, summary, run] : commands()) {
    const auto text = test::refusal<UsageError>([&, run = run] { run({"--never-heard-of"}); });
    EXPECT_TRUE(has(text, "'--never-heard-of' / lockstep " + name));
  }
}

TEST(CliCommands, ThoseThatJoinAJobTakeALauncher) {
  for (const auto& [name, summary, run] : commands()) {
    const auto line = name + (name == "bench" ? " step --help" : " --help");
    const auto text = test::printed([&] { call(line); });
    EXPECT_EQ(joins_job(name), text.find("\n  --launcher NAME") != std::string::npos) << name;
  }
  EXPECT_FALSE(joins_job("no command"));
}

TEST(CliCommands, AWrongCallIsRefusedWithWhatToDo) {
  const std::pair<const char*, const char*> rows[] = {
      {"bench", "the bench is missing / lockstep bench / see: lockstep bench --help"},
      {"bench overlpa", "unknown bench 'overlpa' / lockstep bench / did you mean overlap?"},
      {"check groups.1 --hint --reset", "options conflict / lockstep check / one option at a time"},
      {"check --solution", "missing EXERCISE / lockstep check / lockstep check EXERCISE --hint"},
      {"workshop init", "where to? / lockstep workshop / lockstep workshop init DIR"},
      {"data list --root x", "--root needs a SET /  / lockstep data list mnist --root DIR"},
      {"data list mnits", "there is no known data set 'mnits' /  / did you mean mnist?"},
      {"data lsit", "data cannot 'lsit' /  / lockstep data list, fetch or verify"},
      {"site lsit", "site cannot 'lsit' / lockstep site / lockstep site list, show, detect or keys"},
      {"site show", "which site? / lockstep site show / lockstep site list names them"},
      {"render slrum x.yaml",
       "there is no scheduler 'slrum' / lockstep render / "
       "lockstep render pbs CONFIG, or lockstep render slurm CONFIG"},
      {"submit x.yaml --chain 101", "--chain 101: 1 to 100 jobs are wanted /  / "},
      {"submit x.yaml --chain 2 --sweep optim.lr=1,2",
       "--chain and --sweep exclude each other / lockstep submit / "
       "the tasks of a sweep go on by themselves where they stop early"},
      {"eval x.yaml",
       "eval needs a checkpoint / --checkpoint / "
       "lockstep eval runs/NAME, or pass --checkpoint runs/NAME/checkpoints/step-N.pt"},
      {"predict x.yaml --input y.csv",
       "predict needs a checkpoint and an input / --checkpoint, --input / "
       "lockstep predict runs/NAME --input FILE; see lockstep predict --help"},
      {"predict runs/a y.csv",
       "unexpected argument: 'y.csv' / lockstep predict / did you mean --input y.csv? see: lockstep predict "
       "--help"},
      {"predict runs/a y.csv --input z.csv",
       "unexpected argument: 'y.csv' / lockstep predict / see: lockstep predict --help"}};
  for (const auto& [line, refused] : rows)
    EXPECT_EQ(test::refusal([&, line = line] { call(line); }), refused) << line;
}

}  // namespace
}  // namespace lockstep::cli
