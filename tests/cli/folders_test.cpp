// Commands on files and folders that the test made.
#include <nlohmann/json.hpp>

#include <set>

#include "lockstep/base/program.h"
#include "lockstep/base/text.h"
#include "support.h"
#include "temp_folder.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/failure.h"
#include "trainer/run_folder/folder.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::call;
using test::has;
using test::printed;
using test::refusal;

class CliFolders : public ::testing::Test {
 protected:
  std::string run(const std::string& name, const std::string& state, int step = 20) const {
    fs::create_directories(runs_ + "/" + name);
    const json status = {{"state", state}, {"reason", "why"}, {"attempt", 3}, {"step", step}};
    scratch_.write("runs/" + name + "/config.yaml", "run: {name: " + name + "}\n");
    scratch_.write("runs/" + name + "/status.json", status.dump());
    return runs_ + "/" + name;
  }

  test::TempFolder scratch_;
  const std::string runs_ = scratch_ / "runs";
};

TEST_F(CliFolders, StatusLeavesWithWhatBecameOfTheRun) {
  const std::pair<std::string, int> rows[] = {
      {"done", 0}, {"failed", 1}, {"stopped on request", 4}, {"stopped early", 75}};
  for (const auto& [state, status] : rows) {
    const auto folder = run("a", state);
    const auto text = printed([&, status = status] { EXPECT_EQ(call("status " + folder), status); });
    EXPECT_TRUE(text.starts_with(state + ": why\nstep 20, ")) << text;
    const auto told =
        json::parse(printed([&, status = status] { EXPECT_EQ(call("status --json " + folder), status); }));
    EXPECT_EQ(told["state"], state);
    EXPECT_EQ(told["exit_status"], status);
    EXPECT_EQ(told["reason"], "why");
  }
}

TEST_F(CliFolders, RunsShowTheColumnsThatAreAskedFor) {
  run("a", "done"), run("b", "failed", 7);
  EXPECT_EQ(printed([&] { call("runs " + runs_ + " --columns step,run.name"); }),
            "run  step  run.name\na      20         a\nb       7         b\n");
  EXPECT_EQ(printed([&] { call("runs " + runs_ + " --columns step,name,step"); }),
            "run  step\na      20\nb       7\n");
  EXPECT_TRUE(has(refusal([&] { call("runs " + runs_ + " --columns stpe"); }),
                  "the runs have no 'stpe' / --columns / did you mean step? "));
  EXPECT_TRUE(
      has(refusal([&] { call("runs " + runs_ + " --columns learning_rate"); }), "did you mean optim.lr? "));
}

TEST_F(CliFolders, AFolderWithoutAConfigIsSaidToBeOne) {
  for (const auto* command : {"config ", "eval ", "train "})
    EXPECT_EQ(refusal([&] { call(command + scratch_.path().string()); }),
              "this folder holds no config.yaml / " + scratch_.path().string() +
                  " / pass a config file, or the folder of a run, like runs/mnist");
}

TEST_F(CliFolders, OfARunsFolderTheConfigIsShown) {
  const auto folder = run("a", "done");
  EXPECT_EQ(printed([&] { call("config --changed " + folder); }).substr(0, 14), "run:\n  name: a");
}

TEST_F(CliFolders, ARunThatIsNotOnIsNotAsked) {
  const auto done = run("done", "done"), dead = run("dead", "running");
  const auto rest = [](const std::string& f) { return " / " + f + " / run lockstep status " + f; };
  EXPECT_EQ(refusal([&] { call("stop " + done); }), "the run has ended: done" + rest(done));
  EXPECT_EQ(refusal([&] { call("stop " + dead); }), "the run has ended without a final status" + rest(dead));
  EXPECT_FALSE(fs::exists(done + "/stop.request") || fs::exists(dead + "/stop.request"));
}

TEST_F(CliFolders, ARunThatIsOnIsAsked) {
  const auto folder = run("a", "running");
  const auto held = run_folder::RunLock::take(folder);
  const auto text = printed([&] { EXPECT_EQ(call("stop --no-wait " + folder), kDone); });
  EXPECT_EQ(text, "requested, without waiting: " + folder + "/stop.request\n");
  EXPECT_TRUE(fs::exists(folder + "/stop.request"));
  EXPECT_TRUE(has(refusal<Error>([&] { call("checkpoint --timeout 0 " + folder); }),
                  "not done within 0 s; the request is still pending / " + folder));
}

TEST_F(CliFolders, AJobScriptIsNeverWrittenOverAFile) {
  const auto out = scratch_ / "job.slurm";
  const auto line = "render slurm " + scratch_.write("c.yaml", "run: {name: a}\n") + " --nodes 3 --time 90m";
  const auto text = printed([&] { call(line); });
  EXPECT_TRUE(has(text, "#SBATCH --nodes=3\n"));
  EXPECT_TRUE(has(text, "#SBATCH --time=01:30:00\n"));
  EXPECT_EQ(printed([&] { call(line + " --out " + out); }), "");
  EXPECT_EQ(fs::file_size(out), text.size());
  EXPECT_EQ(refusal([&] { call(line + " --out " + out); }),
            "the output file already exists / " + out + " / remove it, or choose another --out");
}

TEST_F(CliFolders, TensorsAreToldWithTheirDigests) {
  const std::string header = R"({"w":{"dtype":"F32","shape":[3,1],"data_offsets":[0,12]}})";
  const std::string length(1, static_cast<char>(header.size())),
      numbers("\0\0\x80?\0\0\0@\0\0@@", 12);  // 1, 2, 3
  const auto file = scratch_.write("m.safetensors", length + std::string(7, '\0') + header + numbers);
  const auto told = json::parse(printed([&] { call("inspect --json " + file); }));
  EXPECT_EQ(told.at("checksum"), "none");
  EXPECT_EQ(told.at("entries"), json::parse(R"([{"name": "w", "kind": "tensor", "dtype": "float32",
      "shape": [3, 1], "bytes": 12, "digest": "8e628779e6a74ee0"}])"));  // as sha256sum has it
}

// Every command as `lockstep NAME` calls it: its help, and what it refuses before it begins.

// These commands run another program: test_every_command.py tests them.
const std::set<std::string> kOtherPrograms = {"check", "job", "workshop"};

std::vector<Subcommand> own_commands() {
  std::vector<Subcommand> own;
  for (const auto& command : commands())
    if (!kOtherPrograms.contains(command.name)) own.push_back(command);
  return own;
}

TEST(CliCommands, EachHasALineOfItsOwnAndHelp) {
  std::set<std::string> seen;
  for (const auto& [name, summary, run] : own_commands()) {
    EXPECT_TRUE(seen.insert(name).second && seen.insert(summary).second) << name;
    EXPECT_FALSE(summary.empty() || summary.size() > 67 || summary.ends_with(".")) << name;  // of 80 columns
    const auto text = printed([&, run = run] { EXPECT_EQ(run({"--help"}), kDone); });
    EXPECT_TRUE(has(text, "lockstep " + name + ": "));
    EXPECT_TRUE(has(text, "\n\nusage: lockstep " + name + " "));
    EXPECT_TRUE(has(text, "\n  -h, --help "));
    EXPECT_TRUE(has(text, "\nexamples:\n  "));
    for (const auto& line : base::split(text, '\n')) EXPECT_LE(base::letters(line), 100u) << line;
  }
}

TEST(CliCommands, EachRefusesAnOptionThatNobodyKnows) {
  for (const auto& [name, summary, run] : own_commands()) {
    const auto text = refusal<UsageError>([&, run = run] { run({"--never-heard-of"}); });
    EXPECT_TRUE(has(text, "'--never-heard-of' / lockstep " + name));
  }
}

TEST(CliCommands, ThoseThatJoinAJobTakeALauncher) {
  for (const auto& [name, summary, run] : own_commands()) {
    const auto line = name + (name == "bench" ? " step --help" : " --help");
    const auto text = printed([&] { call(line); });
    EXPECT_EQ(joins_job(name), text.find("\n  --launcher NAME") != std::string::npos) << name;
  }
  EXPECT_FALSE(joins_job("no command"));
}

TEST(CliCommands, AWrongCallIsRefusedForWhatIsWrong) {
  const std::pair<const char*, const char*> rows[] = {
      {"bench", "missing argument BENCH / lockstep bench / see lockstep bench --help"},
      {"bench overlpa", "unknown bench 'overlpa' / lockstep bench / did you mean overlap?"},
      {"model", "missing argument ACTION"},
      {"model chekc", "did you mean check?"},
      {"model check", "missing argument MODEL.pt2"},
      {"model template --input float32:3x0", "'float32:3x0' is not DTYPE:SIZES / --input / "},
      {"model template --output a\"b", "--output a\"b / "},
      {"export x.yaml --checkpoint y", "--checkpoint, --output, --pt2 / "},
      {"export x.yaml --checkpoint y --pt2 z", "--pt2 z / "},
      {"data list --root x", "--root needs a SET"},
      {"data list mnits", "did you mean mnist?"},
      {"data lsit", "unknown action 'lsit'"},
      {"site lsit", "use list, show, detect or keys"},
      {"site show", "run lockstep site list"},
      {"render slrum x.yaml", "there is no scheduler 'slrum'"},
      {"submit x.yaml --chain 101", "--chain must be from 1 to 100 (got 101)"},
      {"submit x.yaml --chain 2 --sweep optim.lr=1,2", "--chain and --sweep cannot be combined"},
      {"eval x.yaml", "pass --checkpoint PATH"},
      {"predict x.yaml --input y.csv", "--checkpoint, --input / "},
      {"predict runs/a y.csv", "unexpected argument: 'y.csv'"}};
  for (const auto& [line, why] : rows) EXPECT_TRUE(has(refusal([&, line = line] { call(line); }), why));
}

}  // namespace
}  // namespace lockstep::cli
