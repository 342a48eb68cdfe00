#include "lockstep/launch/process/alarm.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/launch/process/stop_signal.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kLook = 100ms, kLookForSignal = 20ms;
constexpr std::chrono::seconds kLate = 1s;

// Open MPI sends SIGKILL 0.9 s after its timeout (measured: 1.9 s for the default of 1 s, 9.5 s for 8 s).
// Exiting half a second before that leaves time to report why.
constexpr const char* kOpenMpiTimeout = "OMPI_MCA_odls_base_sigkill_timeout";
constexpr double kOpenMpiDefault = 1;
constexpr double kOpenMpiSpare = 0.4;
// Slurm's KillWait is 30 s and PBS's kill_delay 10 s by default.
const std::map<std::string, double> kByScheduler = {{"slurm", 25}, {"pbs", 8.5}, {"torque", 8.5}};
constexpr double kElsewhere = 8.5;

}  // namespace

Alarm::Alarm(std::chrono::milliseconds delay, std::function<void()> action) {
  if (delay.count() <= 0) return;
  const auto look = [delay, action = std::move(action), awake = base::AwakeTime()]() mutable {
    if (awake.passed() < delay) return true;
    action();
    return false;
  };
  timer_ = std::make_unique<base::Timer>(std::min(kLook, delay), look);
}

StallWatch::StallWatch(Limits limits, std::function<void()> action)
    : timer_(kLook, [this, limits = std::move(limits), action = std::move(action), seen = std::uint64_t{0},
                     silent = base::AwakeTime()]() mutable {
        const auto now = signs_.load(std::memory_order_relaxed);
        if (now != std::exchange(seen, now) || now == 0) silent = {};
        const auto passed = silent.passed();
        const bool stuck = passed > kLate && limits.cannot_progress && limits.cannot_progress();
        if (passed <= limits.longest && !stuck) return true;
        action();
        return false;
      }) {}

double grace_seconds(const Job& job, const Environment& environment) {
  const bool is_spawned_below = job.launcher == "as_world" && environment.contains("OMPI_COMM_WORLD_RANK");
  if (job.launcher == "openmpi" || is_spawned_below) {
    const auto found = environment.find(kOpenMpiTimeout);
    const double timeout = found == environment.end() ? kOpenMpiDefault : std::atof(found->second.c_str());
    return timeout + kOpenMpiSpare;
  }
  const auto found = kByScheduler.find(job.scheduler);
  return found == kByScheduler.end() ? kElsewhere : found->second;
}

Grace::Grace(double seconds, std::function<void()> give_up)
    : timer_(kLookForSignal, [this, seconds, give_up = std::move(give_up), age = std::optional<double>(),
                              awake = base::AwakeTime()]() mutable {
        const auto since = StopSignals::since_term();
        if (!since) return true;
        // the SIGTERM may be older than this object
        if (!age) age = since->count(), awake = {};
        if (agreed_ || *age + std::chrono::duration<double>(awake.passed()).count() < seconds) return true;
        give_up();
        return false;
      }) {}

}  // namespace lockstep::launch
