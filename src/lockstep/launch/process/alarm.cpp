#include "lockstep/launch/process/alarm.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/launch/process/stop_signal.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kPause = 100ms;
constexpr auto kLate = 1s;

// Open MPI's SIGKILL comes 0.9 s after the timeout that is set (1 s where none is: 1.9 s measured, 9.5 s with
// 8); leaving half a second before that is time enough to say why.
constexpr const char* kOpenMpiTimeout = "OMPI_MCA_odls_base_sigkill_timeout";
constexpr double kOpenMpiDefault = 1;
constexpr double kOpenMpiSpare = 0.4;
// Slurm's KillWait is 30 s and PBS's kill_delay 10 s by default.
const std::map<std::string, double> kByScheduler = {{"slurm", 25}, {"pbs", 8.5}, {"torque", 8.5}};
constexpr double kElsewhere = 8.5;

}  // namespace

PollingThread::PollingThread(std::chrono::milliseconds pause, std::function<bool()> is_done)
    : thread_([this, pause, is_done = std::move(is_done)](const std::stop_token& stop) {
        for (bool done = false; !done && !stop.stop_requested(); done = !stop.stop_requested() && is_done()) {
          std::unique_lock lock(mutex_);
          stopped_.wait_for(lock, stop, pause, [] { return false; });
        }
      }) {}

Alarm::Alarm(std::chrono::milliseconds delay, std::function<void()> action)
    : thread_(std::clamp<std::chrono::milliseconds>(delay, 1ms, kPause),
              [delay, awake = base::AwakeTime(), action = std::move(action)]() mutable {
                if (delay.count() <= 0) return true;
                if (awake.passed() < delay) return false;
                action();
                return true;
              }) {}

StallWatch::StallWatch(Limits limits, std::function<void()> action)
    : thread_(kPause, [this, limits = std::move(limits), action = std::move(action), seen = std::uint64_t{0},
                       silent = base::AwakeTime()]() mutable {
        const auto now = signs_.load(std::memory_order_relaxed);
        if (now != std::exchange(seen, now) || now == 0) silent = {};
        const auto passed = silent.passed();
        const bool hopeless = passed > kLate && limits.is_hopeless && limits.is_hopeless();
        if (passed <= limits.longest && !hopeless) return false;
        action();
        return true;
      }) {}

double grace_seconds(const Job& job, const Environment& environment) {
  const bool spawned_below_it = job.launcher == "as_world" && environment.contains("OMPI_COMM_WORLD_RANK");
  if (job.launcher == "openmpi" || spawned_below_it) {
    const auto found = environment.find(kOpenMpiTimeout);
    const double timeout = found == environment.end() ? kOpenMpiDefault : std::atof(found->second.c_str());
    return timeout + kOpenMpiSpare;
  }
  const auto found = kByScheduler.find(job.scheduler);
  return found == kByScheduler.end() ? kElsewhere : found->second;
}

// The SIGTERM may have come before this thread began.
Grace::Grace(double seconds, std::function<void()> give_up)
    : thread_(20ms, [this, seconds, give_up = std::move(give_up), age = std::optional<double>(),
                     awake = base::AwakeTime()]() mutable {
        const auto since = StopSignals::since_term();
        if (!since) return false;
        if (!age) age = since->count(), awake = {};
        const auto passed = *age + std::chrono::duration<double>(awake.passed()).count();
        if (agreed_ || passed < seconds) return false;
        give_up();
        return true;
      }) {}

}  // namespace lockstep::launch
