// Chapter 3: process groups.
#include <algorithm>
#include <numeric>

#include "course/workshop/attempt.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace {

CHECK_OF("groups.1", attempt) {
  for (const Row& losses : {Row{1, 2}, Row{0.5, 4.25, 1}}) {
    const auto run = attempt.run({.world = static_cast<int>(losses.size()), .args = as_words(losses)});
    const double sum = std::accumulate(losses.begin(), losses.end(), 0.0);
    for (const auto& rank : run.ranks) {
      const double is = rank.number("mean"), mean = sum / static_cast<double>(losses.size());
      rank.expect_number("mean", mean, "combine the ranks' own losses, whatever they are",
                         {{near(is, sum), "that is the sum of all losses", "divide the sum to get the mean"},
                          {near(is * static_cast<double>(losses.size()), mean), "it is divided twice"},
                          {near(run.ranks[0].number("mean"), mean), "only rank 0 returns the mean"},
                          {near(is, losses[static_cast<size_t>(rank.rank())]), "that is its own loss"}});
    }
  }
}

// each rank's seconds; the lower rank where two are the slowest
CHECK_OF("groups.2", attempt) {
  for (const Row& seconds :
       {Row{42, 42.5}, Row{30, 50, 20, 40}, Row{42.5, 30, 42.5}, Row{70.2, 30, 70.2000000001}}) {
    const auto run = attempt.run({.world = static_cast<int>(seconds.size()), .args = as_words(seconds)});
    const auto slowest = std::max_element(seconds.begin(), seconds.end()) - seconds.begin();
    for (const auto& rank : run.ranks)
      rank.expect_number(
          "slowest", static_cast<double>(slowest),
          format("return the same on all ranks: the lowest rank among the slowest. Their seconds: {}",
                 base::join(as_words(seconds), " ")),
          {{rank.number("slowest") == rank.rank() && rank.rank() > 0, "each rank returns its own number"}});
  }
}

// main()'s samples: rank r got 3 + r of its 10 (1 + r) right
CHECK_OF("groups.3", attempt) {
  for (const int world : {2, 3}) {
    const auto run = attempt.run({.world = world, .settings = {"LOCKSTEP_TIMEOUT=3"}});
    double right = 0, seen = 0;
    for (int rank = 0; rank < world; ++rank) right += 3 + rank, seen += 10 * (1 + rank);
    run.ranks[0].expect_number("accuracy", right / seen, "is it the accuracy of rank 0's own samples?");
    for (const auto& rank : run.ranks) {
      const auto lines = rank.rows("accuracy").size();
      expect(lines == (rank.rank() == 0 ? 1U : 0U),
             format("rank {} prints the accuracy {} times instead of once on rank 0", rank.rank(), lines));
    }
  }
}

// --- groups.4: who a process is, by its environment

struct Start {
  const char* by;
  Words settings;
  int rank, world;   // rank -1: it has to stop with an error
  const char* meet;  // empty: it does not matter
};

const std::vector<Start>& starts() {
  static const std::vector<Start> table = {
      {"torchrun", {"RANK=2", "WORLD_SIZE=4", "MASTER_ADDR=n1", "MASTER_PORT=29500"}, 2, 4, "n1"},
      {"Open MPI's mpirun in a PBS job",
       {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=3", "PBS_NODEFILE=nodes"},
       1,
       3,
       "n7"},
      {"srun -n4 in a job of 8 tasks",
       {"SLURM_PROCID=3", "SLURM_STEP_NUM_TASKS=4", "SLURM_NTASKS=8", "SLURM_JOB_NODELIST=n[3-4]"},
       3,
       4,
       "n3"},
      {"mpirun inside a Slurm job",
       {"OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=4", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1",
        "SLURM_NTASKS=4", "SLURM_JOB_NODELIST=n[5,8]"},
       2,
       4,
       "n5"},
      {"nobody", {}, 0, 1, "127.0.0.1"},
      {"a job script of Slurm itself, without srun",
       {"SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_JOB_NODELIST=n[3-4]"},
       0,
       1,
       ""},
      {"a launcher that counts wrong", {"RANK=-1", "WORLD_SIZE=2", "MASTER_ADDR=n1"}, -1, 0, ""},
      {"a launcher that counts from 1", {"RANK=4", "WORLD_SIZE=4", "MASTER_ADDR=n1"}, -1, 0, ""},
      {"an mpirun that counts from 1", {"OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=3"}, -1, 0, ""},
      {"a launcher that sets no world size", {"RANK=1", "MASTER_ADDR=n1"}, -1, 0, ""},
      {"a launcher that counts in letters", {"RANK=abc", "WORLD_SIZE=2", "MASTER_ADDR=n1"}, -1, 0, ""},
      {"a launcher that sets no address", {"RANK=1", "WORLD_SIZE=2"}, -1, 0, ""},
  };
  return table;
}

void check_identity(const RankRun& process, const Start& start) {
  const auto by = format("started by {} ({}), it ", start.by, base::join(start.settings, " "));
  constexpr const char* kThink =
      "find which variables this launcher sets, and which are left over from another";
  expect(process.ending().is_well(), by + "does not end:\n" + process.ending().printed, kThink);
  if (start.rank < 0)
    return expect(process.has("error"), by + "continues, and no other rank would ever join it",
                  "stop such a process with an error, or the others wait for it: ranks count from 0");
  expect(!process.has("error"),
         by + format("stops with an error, but it is rank {} of {}", start.rank, start.world), kThink);
  const double rank = process.number("rank"), world = process.number("world");
  expect(rank == start.rank && world == start.world,
         by + format("uses rank {} of {}, but it is rank {} of {}", shown(rank), shown(world), start.rank,
                     start.world),
         kThink);
  expect(process.text("meet") == start.meet || !*start.meet,
         by + format("uses {} as the address, but the others use {}", process.text("meet"), start.meet));
}

CHECK_OF("groups.4", attempt) {
  const auto& table = starts();
  attempt.start({"bash", "-c", "printf 'n7\\nn7\\nn9\\n' >nodes"}, {});
  RunOptions options{.world = static_cast<int>(table.size()),
                     .label = format("{} processes, each started in another way", table.size()),
                     .may_fail = true,
                     .alone = true};
  for (const auto& start : table) options.rank_settings.push_back(start.settings);
  const auto run = attempt.run(options);
  for (size_t i = 0; i < table.size(); ++i) check_identity(run.ranks[i], table[i]);
}

}  // namespace
}  // namespace lockstep::workshop
