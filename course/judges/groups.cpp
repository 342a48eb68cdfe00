// Chapter 3: process groups.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "course/workshop/judge.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace {

LOCKSTEP_JUDGE("groups.1", attempt) {
  for (const Row& losses : {Row{1, 2}, Row{0.5, 4.25, 1}}) {
    const auto run = attempt.run({.world = static_cast<int>(losses.size()), .args = as_words(losses)});
    const auto world = static_cast<double>(losses.size());
    const double sum = std::accumulate(losses.begin(), losses.end(), 0.0);
    const auto said = of_all(run, "mean");
    const auto all_say = [&](double mean) { return near(said, Row(losses.size(), mean)); };
    expect(all_say(sum / world),
           format("with losses of {} on {} ranks, they have {} for the mean, rank by rank, and it is {}",
                  shown(losses), losses.size(), shown(said), shown(sum / world)),
           {{all_say(sum), "that is the sum of all losses", "what makes a mean of a sum?"},
            {near(said, losses), "that is its own loss", "the other ranks' losses have not come in"},
            {all_say(losses[0]), "that is the loss of rank 0", "the other ranks' losses have not come in"},
            {all_say(sum / 2), "as if there were 2 ranks", "who knows how many there are?"},
            {all_say((world + 1) / 2), format("that is the mean of the losses 1 to {}", losses.size()),
             "a loss may be anything: bring the ranks' own together"},
            {all_say(*std::max_element(losses.begin(), losses.end())), "that is the greatest loss",
             "max() is one collective; which one is a mean made of?"}});
  }
}

// --- groups.2: each rank's seconds

// why this rank may have been named, which is another than the slowest
std::string guess_of_named(size_t named, size_t slowest, const Row& seconds) {
  const double its = seconds[named], longest = seconds[slowest];
  if (its == longest) return "both took as long, and the lower rank is wanted";
  if (static_cast<float>(its) == static_cast<float>(longest))
    return format("as floats both are alike, and the seconds are doubles ({:.12g} and {:.12g})", its,
                  longest);
  if (std::floor(its) == std::floor(longest)) return "as if the seconds were cut to whole numbers";
  if (its > seconds[0] || (named > 0 && its > seconds[named - 1]))
    return "it took longer than one before it, and another longer than all";
  return "";
}

LOCKSTEP_JUDGE("groups.2", attempt) {
  for (const Row& seconds :
       {Row{42, 42.5}, Row{30, 50, 20, 40}, Row{42.5, 30, 42.5}, Row{70.2, 30, 70.2000000001}}) {
    const auto run = attempt.run({.world = static_cast<int>(seconds.size()), .args = as_words(seconds)});
    const auto slowest =
        static_cast<size_t>(std::max_element(seconds.begin(), seconds.end()) - seconds.begin());
    const auto wanted = static_cast<double>(slowest);
    const auto said = of_all(run, "slowest");
    Row themselves(seconds.size());
    std::iota(themselves.begin(), themselves.end(), 0);
    for (size_t rank = 0; rank < said.size(); ++rank) {
      const double answer = said[rank];
      const auto what = format("with {} ranks, rank {} says {} for the slowest, and it is rank {}",
                               said.size(), rank, shown(answer), slowest);
      const bool is_rank = answer >= 0 && answer < static_cast<double>(said.size()) && answer != wanted;
      const auto guess = is_rank ? guess_of_named(static_cast<size_t>(answer), slowest, seconds) : "";
      expect(answer == wanted, what,
             {{answer == std::floor(seconds[slowest]), "these are its seconds, and not whose it is"},
              {said == themselves, "each rank names itself"},
              {said[slowest] == wanted, "only the slowest knows, and all are to say the same"},
              {said[0] == wanted, "only rank 0 knows, and all are to say the same"},
              {!guess.empty(), guess}});
    }
  }
}

// --- groups.3

void require_no_hang(const Run& run) {
  for (const auto& rank : run.ranks) {
    if (rank.ending().is_well()) continue;
    const auto think =
        format("which line of the program does rank {} come to, and the others not?", rank.rank());
    const auto error = rank.ending().error.value_or(Fault{.what = rank.ending().printed});
    if (const auto apart = different_calls(error); !apart.empty())
      throw NotYet(format("with {} ranks, {}", run.ranks.size(), apart), think);
    throw NotYet(format("rank {} waited in a collective that another rank never called:\n  {}", rank.rank(),
                        base::readable(error.what)),
                 think);
  }
}

LOCKSTEP_JUDGE("groups.3", attempt) {
  for (const int world : {2, 3}) {
    const auto run = attempt.run({.world = world, .settings = {"LOCKSTEP_TIMEOUT=3"}, .may_fail = true});
    require_no_own_failure(run, attempt.folder());
    require_no_hang(run);
    // of the samples that main() has: rank r got 3 + r of its 10 (1 + r) right
    double right = 0, seen = 0;
    for (int rank = 0; rank < world; ++rank) right += 3 + rank, seen += 10 * (1 + rank);
    const double said = run.ranks[0].number("accuracy");
    expect(near(said, right / seen),
           format("with {} ranks, the accuracy is {}, and it should be {}", world, shown(said),
                  shown(right / seen)),
           {{near(said, 0.3), "that is of rank 0's own samples"}});
    for (const auto& rank : run.ranks)
      expect(rank.rows("accuracy").size() == (rank.rank() == 0 ? 1U : 0U),
             format("rank {} shows the accuracy {} times, and one line, from rank 0, is wanted", rank.rank(),
                    rank.rows("accuracy").size()));
  }
}

// groups.4: what a process is told, and who it is
struct Told {
  const char* by;
  std::vector<std::string> settings;
  int rank, world;
  const char* meet;  // nothing: it does not matter
};

const std::vector<Told>& tellings() {
  static const std::vector<Told> table = {
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
      {"a launcher gone wrong", {"RANK=-1", "WORLD_SIZE=2", "MASTER_ADDR=n1"}, -1, 0, ""},
      {"another one", {"RANK=4", "WORLD_SIZE=4", "MASTER_ADDR=n1"}, -1, 0, ""},
      {"an mpirun gone wrong", {"OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=3"}, -1, 0, ""},
      {"one who tells no world size", {"RANK=1", "MASTER_ADDR=n1"}, -1, 0, ""},
      {"one who counts in letters", {"RANK=abc", "WORLD_SIZE=2", "MASTER_ADDR=n1"}, -1, 0, ""},
      {"one who tells no address", {"RANK=1", "WORLD_SIZE=2"}, -1, 0, ""},
  };
  return table;
}

bool is_told(const Told& told, const std::string& setting) {
  return std::find(told.settings.begin(), told.settings.end(), setting) != told.settings.end();
}

// why this answer may have been given
std::string guess(const Told& told, double rank, double world) {
  if (rank == 0 && world == 1 && told.world > 1 && !is_told(told, "SLURM_STEP_NUM_TASKS=1"))
    return ": it thinks that it is alone";
  if (is_told(told, format("SLURM_NTASKS={}", shown(world))) && world != told.world)
    return ": SLURM_NTASKS is what the job asked for, and not how many were started";
  if (is_told(told, "SLURM_PROCID=0") && rank == 0)
    return ": SLURM_PROCID is the number of mpirun's own helper here";
  return "";
}

// these processes never meet, so each is looked at alone
void require_end(const RankRun& process, const Told& told) {
  if (process.ending().is_well()) return;
  throw NotYet(format("started by {}, it does not come to its end:\n{}", told.by, process.ending().printed),
               "is each variable there that it asks for?");
}

void require_refused(const RankRun& process, const Told& told) {
  if (process.has("error")) return;
  const auto rank = process.number("rank"), world = process.number("world");
  throw NotYet(
      format("told {} and {}, it takes itself for rank {} of {}: {}", told.settings[0], told.settings[1],
             shown(rank), shown(world),
             rank == world ? format("ranks count from 0, and the last one is rank {}", shown(world - 1))
                           : "nobody would ever meet it"),
      "such a process has to stop with an error at once; else the others wait for a minute");
}

void require_known(const RankRun& process, const Told& told) {
  const auto by = format("started by {}, ", told.by);
  if (process.has("error"))
    throw NotYet(by + format("it stops with an error ({}), and it is rank {} of {}", process.text("error"),
                             told.rank, told.world),
                 "is each variable there that it asks for?");
  const auto rank = process.number("rank"), world = process.number("world");
  if (rank != told.rank || world != told.world)
    throw NotYet(by +
                 format("a process takes itself for rank {} of {}, and it is rank {} of {}", shown(rank),
                        shown(world), told.rank, told.world) +
                 guess(told, rank, world));
  const auto& meet = process.text("meet");
  if (meet == told.meet || !*told.meet) return;
  throw NotYet(by + format("it goes to meet the others on {}, and they meet on {}", meet, told.meet) +
               (meet == "127.0.0.1" ? ": each node would wait for itself" : ""));
}

LOCKSTEP_JUDGE("groups.4", attempt) {
  const auto& table = tellings();
  attempt.start({"bash", "-c", "printf 'n7\\nn7\\nn9\\n' >nodes"}, {});
  RunOptions options{.world = static_cast<int>(table.size()),
                     .label = format("{} processes, each started in another way", table.size()),
                     .may_fail = true,
                     .alone = true};
  for (const auto& told : table) options.rank_settings.push_back(told.settings);
  const auto run = attempt.run(options);
  for (size_t at = 0; at < table.size(); ++at) require_end(run.ranks[at], table[at]);
  for (size_t at = 0; at < table.size(); ++at) {
    if (table[at].rank >= 0) require_known(run.ranks[at], table[at]);
  }
  for (size_t at = 0; at < table.size(); ++at) {
    if (table[at].rank < 0) require_refused(run.ranks[at], table[at]);
  }
}

}  // namespace
}  // namespace lockstep::workshop
