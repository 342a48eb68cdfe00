#include "lockstep/launch/process/alarm.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/launch/process/stop_signal.h"

namespace lockstep::launch {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{100};
constexpr std::chrono::seconds kLate{1};

}  // namespace

StallWatch::StallWatch(Limits limits, std::function<void()> action)
    : thread_([this, limits = std::move(limits), action = std::move(action)] { look(limits, action); }) {}

void StallWatch::look(const Limits& limits, const std::function<void()>& action) {
  std::uint64_t seen = 0;
  base::AwakeTime silent;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kBetweenLooks, [this] { return ended_; })) {
    const auto now = signs_.load(std::memory_order_relaxed);
    if (now != std::exchange(seen, now) || now == 0) silent = {};
    const auto passed = silent.passed();
    const bool hopeless = passed > kLate && limits.is_hopeless && limits.is_hopeless();
    if (passed <= limits.longest && !hopeless) continue;
    lock.unlock();
    return action();
  }
}

StallWatch::~StallWatch() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

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

namespace {

constexpr std::chrono::milliseconds kLook{100};

}  // namespace

Alarm::Alarm(std::chrono::milliseconds delay, std::function<void()> action) {
  if (delay.count() <= 0) return;
  thread_ = std::thread([this, delay, action = std::move(action)] {
    std::unique_lock lock(mutex_);
    for (base::AwakeTime awake; awake.passed() < delay;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(delay - awake.passed());
      if (changed_.wait_for(lock, std::min(kLook, left), [this] { return cancelled_; })) return;
    }
    action();
  });
}

Alarm::~Alarm() {
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

}  // namespace lockstep::launch
