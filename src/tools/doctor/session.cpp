// Rounds of all ranks, and the checks that need nothing else: deadline and clocks.
#include "tools/doctor/session.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/comm/rendezvous/join.h"
#include "tools/report/page.h"

namespace lockstep::base {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ClockRound, before, after)
}

namespace lockstep::doctor {
namespace {

using report::seconds_text;
using Rounds = std::vector<base::ClockRound>;

constexpr long kShortJob = 600;  // seconds
constexpr int kClockRounds = 8;
constexpr double kMuch = 1;      // seconds: no time service sets that clock
constexpr double kTooMuch = 30;  // seconds: then the run folder's lock cannot tell old from new

std::string signals_of(const std::string& scheduler) {
  if (scheduler == "slurm")
    return "Slurm then sends SIGTERM, and SIGKILL after its KillWait; sbatch --signal=USR1@60 warns earlier";
  if (scheduler == "pbs" || scheduler == "torque")
    return "PBS then sends SIGTERM, and SIGKILL after its kill_delay";
  return "the job then gets SIGTERM";
}

// The error of the measurement taken off.
double least_skew(const ClockSkew& skew) {
  return std::max(0.0, std::abs(skew.ahead) - skew.error);
}

int64_t nanoseconds_now() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
}

}  // namespace

Session::Json Session::round(const std::function<Json()>& work, const Answer& answer) {
  Json own, reply;
  try {
    own["value"] = work();
  } catch (const std::exception& error) {
    own["failed"] = failure_of(error);
  }
  try {
    reply = Json::parse(comm::ask_rank_zero(
        runtime, base::as_line(own),
        [&](const std::vector<std::string>& texts) { return base::as_line(reply_to(texts, answer)); },
        timeout_));
  } catch (const std::exception& error) {
    is_broken_ = true;
    lost_ = fault_of(error).ranks;
    throw RoundFailed(Findings{missing(error)});
  }
  if (reply.contains("failed")) throw RoundFailed(reply["failed"].get<Findings>());
  return reply["value"];
}

// On rank 0. Throws nothing, because the other ranks wait for the answer.
Session::Json Session::reply_to(const std::vector<std::string>& texts, const Answer& answer) const {
  try {
    std::vector<Json> values;
    std::vector<std::pair<int, Finding>> failed;
    for (const auto& text : texts) {
      const auto own = Json::parse(text);
      if (own.contains("failed"))
        failed.emplace_back(static_cast<int>(values.size()), own["failed"].get<Finding>());
      values.push_back(own.value("value", Json()));
    }
    if (!failed.empty()) return {{"failed", of_ranks(failed, texts.size())}};
    return {{"value", answer ? answer(values) : Json()}};
  } catch (const std::exception& error) {
    return {{"failed", Findings{failure_of(error)}}};
  }
}

Finding Session::missing(const std::exception& error) const {
  std::vector<std::string> names;
  for (const int rank : lost_) {
    const auto known =
        std::ranges::find_if(cluster.ranks, [&](const RankFacts& facts) { return facts.job.rank == rank; });
    names.push_back(known == cluster.ranks.end()
                        ? format("rank {}", rank)
                        : format("rank {} (host {}, pid {})", rank, known->job.host, known->pid));
  }
  if (names.empty()) return failure_of(error);
  return failure(
      format("{} did not answer within {} s", base::listed(names, names.size()), timeout_.count() / 1000.0),
      "check whether that process is stopped (state T in ps), has died, or its node does not answer");
}

Finding deadline_finding(const Job& job, std::optional<launch::Time> end, launch::Time now) {
  if (job.scheduler == "none") return ok("not in a batch job, so there is no time limit");
  if (!end)
    return warning(format("the end time of {} job {} is unknown", job.scheduler, job.job_id),
                   "add squeue and scontrol, or qstat, to PATH; for other schedulers set train.max_seconds");
  const long left = std::chrono::duration_cast<std::chrono::seconds>(*end - now).count();
  const std::string says =
      format("the job{} ({}); {}",
             left < 0 ? "'s time limit has passed" : " ends in " + seconds_text(static_cast<double>(left)),
             launch::utc_text(*end), signals_of(job.scheduler));
  if (left >= kShortJob) return ok(says);
  return warning(says, left < 0 ? "check this node's clock: date -u"
                                : "request more time (--time, -l walltime=); with checkpoint.before_deadline "
                                  "a run stops before the end");
}

Finding clocks_finding(const std::vector<ClockSkew>& skews) {
  if (skews.empty()) return ok("one rank, so only one clock");
  const auto worst = *std::ranges::max_element(skews, {}, least_skew);
  if (least_skew(worst) <= kMuch)
    return ok(format("the hosts' clocks agree within {}", seconds_text(std::abs(worst.ahead) + worst.error)));
  const auto says = format("the clock of rank {} (host {}) is {} {} rank 0's (to within {})", worst.rank,
                           worst.host, seconds_text(std::abs(worst.ahead)),
                           worst.ahead < 0 ? "behind" : "ahead of", seconds_text(worst.error));
  const std::string remedy =
      "ask for that node's clock to be set: chronyc tracking, timedatectl or ntpq -p show the cause";
  return least_skew(worst) > kTooMuch
             ? failure(says + ": lockstep reads such times to tell whether a run folder is in use", remedy)
             : warning(says, remedy);
}

// Only rank 0 asks the scheduler; the round keeps the others from running ahead.
void measure_deadline(Session& session, Findings& findings) {
  session.round([&]() -> Session::Json {
    const Job& job = session.job();
    if (job.rank == 0)
      findings.push_back(deadline_finding(job, launch::job_deadline(job, session.settings.environment),
                                          std::chrono::system_clock::now()));
    return {};
  });
}

// No rank leaves a round before all have entered it, so the times before and after it bound the difference.
void measure_clocks(Session& session, Findings& findings) {
  if (session.job().world == 1) return;
  Rounds own;
  for (int i = 0; i < kClockRounds; ++i) {
    const auto before = nanoseconds_now();
    session.round([]() -> Session::Json { return {}; });
    own.push_back({before, nanoseconds_now()});
  }
  session.round([&] { return Session::Json(own); },
                [&](const std::vector<Session::Json>& values) -> Session::Json {
                  std::vector<ClockSkew> skews;
                  for (size_t rank = 1; rank < values.size(); ++rank) {
                    const auto reading =
                        base::compare_rounds(values[0].get<Rounds>(), values[rank].get<Rounds>());
                    skews.push_back({static_cast<int>(rank), session.cluster.ranks.at(rank).job.host,
                                     reading.ahead * 1e-9, reading.error * 1e-9});
                  }
                  findings.push_back(clocks_finding(skews));
                  return {};
                });
}

}  // namespace lockstep::doctor
