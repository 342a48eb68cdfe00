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

TEST(CliCommands, AScriptTakesEachInputAndWhatWasAskedFor) {
  const auto plain = test::printed([] { call("model template"); });
  EXPECT_TRUE(has(plain, "\n    torch.randn((4, 1, 28, 28), dtype=torch.float32),\n)\n"));
  EXPECT_TRUE(has(plain, "\nsizes = ({0: free},)  #"));
  EXPECT_TRUE(has(plain, "dynamic_shapes=sizes), \"model.pt2\")\n"));
  EXPECT_TRUE(!has(plain, "eval") && !has(plain, "sample"));
  const auto more = test::printed(
      [] { call("model template --input int64:128x? --input bool --eval --sample --output a/net.pt2"); });
  EXPECT_TRUE(has(more,
                  "\n    torch.randint(2, (4, 128, 5)).to(torch.int64),\n    torch.randint(2, "
                  "(4,)).to(torch.bool),\n)\n"));
  EXPECT_TRUE(has(more, "\nsizes = ({0: free, 2: free}, {0: free},)  #"));
  for (const char* file : {"\"a/net.pt2\")", "\"a/net.eval.pt2\")", "\"a/net.sample.safetensors\")"})
    EXPECT_TRUE(has(more, file));
}

TEST(CliCommands, AWrongCallIsRefusedWithWhatToDo) {
  const std::pair<const char*, const char*> rows[] = {
      {"bench", "the bench is missing / lockstep bench / see: lockstep bench --help"},
      {"bench overlpa", "unknown bench 'overlpa' / lockstep bench / did you mean overlap?"},
      {"model", "the action is missing / lockstep model / see: lockstep model --help"},
      {"model chekc", "unknown action 'chekc' / lockstep model / did you mean check?"},
      {"model check", "MODEL.pt2 is missing / lockstep model check / see: lockstep model check --help"},
      {"model template --input float32:3x0",
       "'float32:3x0' is not DTYPE:SIZES / --input / give a dtype and the sizes of one sample, without the "
       "batch: float32:3x224x224; ? is a size that may change: int64:?"},
      {"model template --output a\"b",
       "the file name cannot contain quotes or backslashes / --output a\"b / "
       "lockstep model template --output model.pt2"},
      {"export x.yaml --checkpoint y",
       "export needs a checkpoint, and either a folder or a file to write / --checkpoint, --output, --pt2 / "
       "lockstep export runs/NAME --pt2 FILE.pt2, of BERT --output FOLDER; see lockstep export --help"},
      {"export x.yaml --checkpoint y --pt2 z",
       "the file's name does not end in .pt2 / --pt2 z / lockstep export runs/NAME --pt2 FILE.pt2"},
      {"data list --root x", "--root needs a SET /  / lockstep data list mnist --root DIR"},
      {"data list mnits", "unknown data set 'mnits' /  / did you mean mnist?"},
      {"data lsit", "unknown action 'lsit' /  / lockstep data list, fetch or verify"},
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
       "unexpected argument: 'y.csv' / lockstep predict / see: lockstep predict --help"}};
  for (const auto& [line, refused] : rows)
    EXPECT_EQ(test::refusal([&, line = line] { call(line); }), refused) << line;
}

}  // namespace
}  // namespace lockstep::cli
