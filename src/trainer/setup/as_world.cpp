#include "trainer/setup/as_world.h"

#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/meet/secret.h"
#include "lockstep/launch/device.h"
#include "lockstep/launch/process/carry.h"
#include "lockstep/launch/process/runtime.h"

namespace lockstep::train {
namespace {

// A name for the file where the ranks meet, for those who have no other place to.
std::string meeting_of(const launch::Runtime& runtime) {
  if (!runtime.has_met()) return "";
  return runtime.broadcast(format("as-world-{}-{}", ::getpid(), comm::fresh_word()));
}

void refuse_other_world(const Job& job, int world) {
  if (job.launcher != "as_world" || job.world == world) return;
  throw InputError(format("train.as_world is {}, and this rank was started as one of {}", world, job.world),
                   "train.as_world", "was the config changed while the job started? start it again");
}

}  // namespace

void choose_sums(Settings& settings) {
  if (settings.train.as_world == 0) return;
  auto& launch = settings.launch;
  if (launch.backend == "auto") launch.backend = "shared";
  if (launch.device == "auto")
    launch.device = launch::count_gpus(launch::current_environment()).count > 0 ? "cuda" : "cpu";
}

bool carries_ranks(const Begun& begun) {
  const int world = static_cast<int>(begun.loaded.settings.train.as_world);
  if (world == 0) return false;
  const auto& job = begun.runtime->job();
  refuse_other_world(job, world);
  return job.world != world;
}

int carry_ranks(Begun begun) {
  const int world = static_cast<int>(begun.loaded.settings.train.as_world);
  const Job job = begun.runtime->job();
  const auto meeting = meeting_of(*begun.runtime);
  begun.runtime.reset();  // MPI is for one process a rank
  log::info(format("train.as_world: {} ranks on {} process{} ({})", world, job.world,
                   job.world == 1 ? "" : "es", launch::blocks_text(job.world, world)));
  return launch::carry(job, world, meeting);
}

int threads_of_rank(const TrainSettings& train) {
  if (train.threads > 0) return static_cast<int>(train.threads);
  return train.as_world > 0 ? 1 : 0;
}

}  // namespace lockstep::train
