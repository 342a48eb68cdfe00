// What whoami writes, of made-up jobs.
#include "tools/whoami/ask.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "refusal.h"

namespace lockstep::whoami {
namespace {

using nlohmann::json;

using test::has;

Process process(int rank, int world) {
  Process made;
  static_cast<Job&>(made) = {.rank = rank,
                             .world = world,
                             .local_rank = rank % 2,
                             .local_world = 2,
                             .node_rank = rank / 2,
                             .nodes = (world + 1) / 2,
                             .host = rank < 2 ? "n1" : "n2",
                             .launcher = "srun",
                             .scheduler = "slurm",
                             .job_id = "42",
                             .because = {{"rank", "SLURM_PROCID"}, {"launcher", "srun"}}};
  made.device = "cpu";
  made.threads = 3;
  made.pid = 900 + rank;
  return made;
}

Report report(int ranks, int world) {
  Report all;
  for (int rank = 0; rank < ranks; ++rank) all.processes.push_back(process(rank, world));
  return all;
}

TEST(Whoami, TellsEachProcessAndEachReasonOnce) {
  auto all = report(4, 4);
  all.ends = "2026-05-04T14:02:11Z";
  for (auto& one : all.processes) one.because["mpi"] = "srun";
  all.processes[2].because["rank"] = all.processes[3].because["rank"] = "PMI_RANK";
  all.processes[3].warnings.push_back("a warning");
  const auto text = as_text(all);
  EXPECT_TRUE(
      text.starts_with("4 ranks on 2 nodes, launcher srun, slurm job 42, ends 2026-05-04T14:02:11Z\n\n"));
  EXPECT_TRUE(has(text, "\n     3      1/2      1  cpu            3       903  n2\n"));
  EXPECT_TRUE(has(text, "\nwhy\n  launcher, mpi             srun\n"));
  EXPECT_TRUE(has(text, "  rank of 0-1               SLURM_PROCID\n  rank of 2-3               PMI_RANK\n"));
  EXPECT_TRUE(has(text, "\nwarnings\n  rank 3: a warning\n"));
}

TEST(Whoami, MarksWhatOneOfManyProcessesSays) {
  const auto whole = json::parse(as_json(report(2, 2)));
  EXPECT_EQ(whole.at("schema"), 1);
  EXPECT_TRUE(whole.at("complete").get<bool>() && whole.at("ends").is_null());
  EXPECT_EQ(whole.at("ranks").at(1).at("pid"), 901);
  const auto line = as_json(report(1, 2));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_FALSE(json::parse(line).at("complete").get<bool>());
  std::istringstream lines(as_text(report(1, 2)));
  for (std::string text; std::getline(lines, text);) EXPECT_TRUE(text.starts_with("[rank 0] ")) << text;
}

}  // namespace
}  // namespace lockstep::whoami
