#include "lockstep/launch/process/grace.h"

#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>

#include "lockstep/base/awake.h"
#include "lockstep/launch/process/stop_signal.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

// Open MPI's SIGKILL comes 0.9 s after the timeout that is set (1 s where none is: 1.9 s measured, 9.5 s with
// 8); leaving half a second before that is time enough to say why.
constexpr const char* kOpenMpiTimeout = "OMPI_MCA_odls_base_sigkill_timeout";
constexpr double kOpenMpiDefault = 1;
constexpr double kOpenMpiSpare = 0.4;
// Slurm's KillWait is 30 s and PBS's kill_delay 10 s by default.
const std::map<std::string, double> kByScheduler = {{"slurm", 25}, {"pbs", 8.5}, {"torque", 8.5}};
constexpr double kElsewhere = 8.5;

}  // namespace

double grace_seconds(const Job& job, const Environment& environment) {
  const bool carried_below_it = job.launcher == "as_world" && environment.contains("OMPI_COMM_WORLD_RANK");
  if (job.launcher == "openmpi" || carried_below_it) {
    const auto found = environment.find(kOpenMpiTimeout);
    const double timeout = found == environment.end() ? kOpenMpiDefault : std::atof(found->second.c_str());
    return timeout + kOpenMpiSpare;
  }
  const auto found = kByScheduler.find(job.scheduler);
  return found == kByScheduler.end() ? kElsewhere : found->second;
}

Grace::Grace(double seconds, std::function<void()> give_up)
    : thread_([this, seconds, give_up = std::move(give_up)] {
        std::optional<double> age;  // of the SIGTERM when it was first seen: it may have come before us
        for (base::AwakeTime awake; !over_; std::this_thread::sleep_for(20ms)) {
          const auto since = StopSignals::since_term();
          if (!since) continue;
          if (!age) age = since->count(), awake = {};
          if (agreed_ || *age + std::chrono::duration<double>(awake.passed()).count() < seconds) continue;
          give_up();
          return;
        }
      }) {}

Grace::~Grace() {
  over_ = true;
  thread_.join();
}

}  // namespace lockstep::launch
