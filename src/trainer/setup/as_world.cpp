// train.as_world: a process starts the ranks that it runs.
#include "trainer/setup/setup.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/meet/join.h"
#include "lockstep/launch/device.h"
#include "lockstep/launch/process/cpus.h"
#include "lockstep/launch/process/spawn_ranks.h"

namespace lockstep::train {
namespace {

// A name for the file where the ranks meet.
std::string meeting_of(const launch::Runtime& runtime) {
  if (!runtime.has_met()) return "";
  return runtime.broadcast(format("as-world-{}-{}", ::getpid(), base::random_word()));
}

// Gone when the ranks have met; a rank that ended before may have left it.
void remove_meeting(Job job, int world, const std::string& meeting) {
  if (meeting.empty() || job.rank != 0) return;
  auto environment = launch::current_environment();
  environment["LOCKSTEP_MEETING"] = meeting;
  job.world = world;
  job.launcher = "as_world";
  std::error_code none;
  std::filesystem::remove(comm::plan_rendezvous(environment, job).path, none);
}

// What the ranks are made of, for those who start from this process: over MPI they have no other way to it.
base::Descriptor handed_down(const std::string& text) {
  base::Descriptor file(::memfd_create("lockstep-config", 0));
  if (file && base::write_all(file.number(), text)) return file;
  throw Error(format("cannot pass the config to the ranks: {}", std::strerror(errno)), "train.as_world",
              "check the free memory of this node");
}

// A mask that a launcher gave for one rank is for all of the block.
void warn_of_few_cores(int ranks) {
  const auto own = launch::own_cpus();
  if (own.cores >= std::min(ranks, own.machine_cores)) return;
  log::warning(
      format("{} ranks of this process share the {} core{} that it is bound to, of {}; bind it to more "
             "(mpirun --bind-to none, srun --cpus-per-task)",
             ranks, own.cores, own.cores == 1 ? "" : "s", own.machine_cores));
}

// Each would start other ranks, and wait for those that no process starts.
void compare_worlds(const launch::Runtime& runtime, int world) {
  if (!runtime.has_met()) return;
  const auto all = runtime.all_gather(std::to_string(world));
  const auto other = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one != all[0]; });
  if (other == all.end()) return;
  throw InputError(
      format("train.as_world is {} for process 0 and {} for process {}", all[0], *other, other - all.begin()),
      "train.as_world", "give all processes the same config and --set");
}

void refuse_other_world(const Job& job, int world) {
  if (job.launcher != "as_world" || job.world == world) return;
  throw InputError(format("train.as_world is {}, and this rank was started as one of {}", world, job.world),
                   "train.as_world", "start the job again; do not change the config while it starts");
}

}  // namespace

void choose_sums(Settings& settings) {
  if (settings.train.as_world == 0) return;
  auto& launch = settings.launch;
  if (launch.backend == "auto") launch.backend = "shared";
  if (launch.device != "auto") return;
  const bool may_be_staged = !launch.has_algorithm() && settings.parallel.pipeline == 1;
  const bool gpus = may_be_staged && launch::count_gpus(launch::current_environment()).count > 0;
  launch.device = gpus ? "cuda" : "cpu";
}

bool spawns_ranks(const StartedJob& begun) {
  const int world = static_cast<int>(begun.loaded.settings.train.as_world);
  compare_worlds(*begun.runtime, world);
  if (world == 0) return false;
  const auto& job = begun.runtime->job();
  refuse_other_world(job, world);
  return job.world != world;
}

int spawn_ranks(StartedJob begun) {
  const int world = static_cast<int>(begun.loaded.settings.train.as_world);
  const Job job = begun.runtime->job();
  const auto meeting = meeting_of(*begun.runtime);
  const int own = launch::block_of(job.rank, job.world, world).count;
  const auto config = handed_down(begun.shared);
  begun.runtime.reset();  // MPI is for one process a rank
  log::info(format("train.as_world: {} ranks on {} process{} ({})", world, job.world,
                   job.world == 1 ? "" : "es", launch::blocks_text(job.world, world)));
  warn_of_few_cores(own * threads_of_rank(begun.loaded.settings.train, false));
  std::vector<std::string> settings = {format("{}={}", kHandedConfig, config.number())};
  if (!meeting.empty()) settings.push_back("LOCKSTEP_MEETING=" + meeting);
  const int status = launch::spawn_ranks(job, world, settings);
  remove_meeting(job, world, meeting);
  return status;
}

int threads_of_rank(const TrainSettings& train, bool trained) {
  if (train.threads > 0) return static_cast<int>(train.threads);
  return train.as_world > 0 && !trained ? 1 : 0;
}

}  // namespace lockstep::train
