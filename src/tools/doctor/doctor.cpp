#include "tools/doctor/doctor.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/base/program.h"
#include "lockstep/comm/rendezvous/join.h"
#include "lockstep/launch/process/leave.h"
#include "lockstep/launch/process/mpi.h"
#include "lockstep/launch/process/stop_signal.h"
#include "lockstep/launch/variables.h"
#include "tools/doctor/session.h"

namespace lockstep::doctor {
namespace {

using nlohmann::ordered_json;
using std::chrono::milliseconds;

constexpr size_t kLongestLine = 2000;
constexpr milliseconds kCollect{10'000};       // for one collector
constexpr milliseconds kRound{15'000};         // for all ranks to take part
constexpr milliseconds kSlack{5'000};          // the layers below time out so much later, with other messages
constexpr milliseconds kLeave{10'000};         // for all ranks to finish
constexpr milliseconds kMeasure{40'000};       // for one measurement
constexpr milliseconds kAll{55'000};           // for everything together
constexpr milliseconds kAfterRankZero{2'000};  // it prints first, and its launcher may then end the others
constexpr unsigned kLastPrint = 2, kLastPrintOnSignal = 1;  // seconds; mpirun kills a second after SIGTERM
constexpr const char* kJoinTimeout = "LOCKSTEP_JOIN_TIMEOUT";
constexpr const char* kMpiInit = "MPI_Init";
constexpr const char* kRendezvous = "rendezvous";

// A shorter timeout of the user's counts. A longer one would exceed the doctor's time.
milliseconds round_timeout(const launch::Environment& environment) {
  try {
    const auto seconds = launch::count_of(environment, kJoinTimeout);
    const auto timeout = seconds ? std::min<milliseconds>(std::chrono::seconds(*seconds), kRound) : kRound;
    ::setenv(kJoinTimeout, std::to_string((timeout + kSlack).count() / 1000).c_str(), 1);
    return timeout;
  } catch (const Error&) {
    return kRound;  // joining reports that it is not a number
  }
}

// Bounds the time of the current stage and of everything, and waits for signals: one thread, which ends the
// process by `on_end` with the reason.
class Watchdog {
 public:
  /// `signal` is 0 where the stage took longer than `limit`.
  using OnEnd = std::function<void(int signal, const std::string& stage, milliseconds limit)>;

  explicit Watchdog(OnEnd on_end)
      : on_end_(std::move(on_end)), thread_([this](const std::stop_token& stop) { watch(stop); }) {}

  void begin(const char* stage, milliseconds limit) {
    const std::lock_guard lock(mutex_);
    stage_ = stage;
    stage_limit_ = limit;
    stage_time_ = {};
  }

 private:
  void watch(const std::stop_token& stop) {
    const launch::StopSignals signals;  // here, as it unblocks them in the thread that makes it
    for (base::AwakeTime all; !stop.stop_requested(); std::this_thread::sleep_for(milliseconds(20))) {
      std::unique_lock lock(mutex_);
      const bool over = stage_time_.passed() > stage_limit_;
      if (!over && all.passed() <= kAll && launch::StopSignals::received() == 0) continue;
      const auto stage = stage_;
      const auto limit = over ? stage_limit_ : kAll;
      lock.unlock();
      on_end_(launch::StopSignals::received(), stage, limit);
    }
  }

  OnEnd on_end_;
  std::mutex mutex_;
  std::string stage_ = "the start";
  milliseconds stage_limit_ = kCollect;
  base::AwakeTime stage_time_;
  std::jthread thread_;
};

// --- the findings as text and as JSON ---

// `tag` begins every line.
std::string as_text(const Finding& finding, const std::string& tag) {
  const auto says = base::printable(finding.says, kLongestLine);
  std::string text = format("{}{:<8} {:<11} {}\n", tag, nlohmann::json(finding.verdict).get<std::string>(),
                            finding.check, says);
  const auto hint = finding.remedy.empty() ? "" : "hint: " + finding.remedy + "\n";
  for (const auto& line : base::split(hint + finding.drawing, '\n'))
    text += tag + std::string(21, ' ') + base::printable(line, kLongestLine) + "\n";
  return text;
}

FindingLevel worst_of(const Findings& findings) {
  const auto worst = std::ranges::max_element(findings, {}, &Finding::verdict);
  return worst == findings.end() ? FindingLevel::ok : worst->verdict;
}

// "14 ok, 1 warning, 0 failures, 2.3 s"
std::string summary(const Findings& findings, double seconds) {
  const auto number = [&](FindingLevel level) {
    return std::ranges::count(findings, level, &Finding::verdict);
  };
  return format("{} ok, {}, {}, {:.1f} s\n", number(FindingLevel::ok),
                counted(number(FindingLevel::warning), "warning"),
                counted(number(FindingLevel::failure), "failure"), seconds);
}

// docs/reference/doctor.md has the schema.
std::string as_json(const Findings& findings, const Cluster& cluster, double seconds) {
  const ordered_json json = {{"schema", 1},
                             {"verdict", nlohmann::json(worst_of(findings))},
                             {"seconds", seconds},
                             {"world", cluster.world()},
                             {"complete", cluster.complete()},
                             {"findings", nlohmann::json(findings)},
                             {"ranks", nlohmann::json(cluster.ranks)}};
  // One line if several processes print. The environment may hold bytes that are not UTF-8.
  return cluster.complete() ? base::as_lines(json) : base::as_line(json) + "\n";
}

// What was found so far, printed as it comes unless --json asks for everything at the end.
class Output {
 public:
  explicit Output(bool json) : json_(json) {}

  /// Before anything is printed: all ranks' facts, or this rank's, which then reports for itself.
  void set_cluster(Cluster cluster, int rank) {
    const std::lock_guard lock(mutex_);
    cluster_ = std::move(cluster);
    tag_ = cluster_.complete() ? "" : format("[rank {}] ", rank);
  }

  /// Once: the heading, `early`, and what the rules find in the cluster's facts. Skips checks in `early`.
  void add_facts(const Findings& early) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(has_facts_, true)) return;
    const Job& job = cluster_.ranks.front().job;
    if (!json_)
      output::print(format("{}{} on {}, launcher {}\n", tag_, counted(job.world, "rank"),
                           counted(job.nodes, "node"), job.launcher));
    add_locked(early);
    for (const Check& check : checks())
      if (std::ranges::find(early, check.name, &Finding::check) == early.end())
        add_locked(evaluate(check, cluster_));
  }

  void add(const Findings& findings) {
    const std::lock_guard lock(mutex_);
    add_locked(findings);
  }

  /// Once: the summary. Nothing is added after it.
  void finish() {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_finished_, true)) return;
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
    output::print(json_ ? as_json(findings_, cluster_, passed.count()) : summary(findings_, passed.count()));
  }

  bool has_failure() const {
    const std::lock_guard lock(mutex_);
    return worst_of(findings_) == FindingLevel::failure;
  }

 private:
  void add_locked(const Findings& findings) {
    if (is_finished_) return;
    if (!json_)
      for (const Finding& finding : findings) output::print(as_text(finding, tag_));
    append(findings_, findings);
  }

  const bool json_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  mutable std::mutex mutex_;
  Cluster cluster_;
  Findings findings_;
  std::string tag_;
  bool has_facts_ = false, is_finished_ = false;
};

// --- from the start to the end ---

class Doctor {
 public:
  explicit Doctor(const DoctorSettings& settings)
      : settings_(settings),
        timeout_(round_timeout(settings.environment)),
        output_(settings.json),
        watchdog_([this](int signal, const std::string& stage, milliseconds limit) {
          end_early(signal, stage, limit);
        }) {}

  int run() {
    const auto self = launch::rank_by_environment(settings_.environment);
    RankFacts own =
        collect(settings_, [this](const char* name) { watchdog_.begin(name, std::min(kCollect, timeout_)); });
    own.job.rank = self.rank;
    own.job.world = self.world;
    try {
      own.job.launcher = launch::detect_launcher(settings_.environment, settings_.launcher);
    } catch (const Error&) {  // start() reports it
    }
    set_own(own);
    start();
    if (!meet()) return report_alone({});
    if (reports()) output_.add_facts(early_);
    return measure();
  }

 private:
  void set_own(const RankFacts& own) {
    own_ = own;
    rank_ = own.job.rank;
    output_.set_cluster({{own}}, rank_);
    has_facts_ = true;
  }

  void set_job(const Job& job) {
    RankFacts own = own_;
    own.job = job;
    choose_gpu(own);
    set_own(own);
  }

  // If the environment contradicts itself, the process is examined alone.
  void start() {
    watchdog_.begin(kMpiInit, timeout_);
    const launch::RuntimeOptions options{
        .phantoms = launch::Phantoms::allow, .join_timeout = timeout_ + kSlack, .leave_timeout = kLeave};
    try {
      runtime_ = std::make_unique<launch::Runtime>(settings_.launcher, options);
      may_meet_ = true;
    } catch (const std::exception& error) {
      add_early("launcher", failure_of(error));
      runtime_ = std::make_unique<launch::Runtime>("none", options);
    }
    const int rank = rank_;
    set_job(runtime_->job());
    const bool is_phantom = !own_.job.phantom.empty();
    may_meet_ = may_meet_ && (!is_phantom || own_.job.world == 1);  // not in the place of another rank
    if (!may_meet_) {
      rank_ = rank;
    } else if (is_phantom) {  // of several that are each "rank 0 of 1" one on each host reports
      reporter_.emplace(settings_.environment);
      is_silent_ = !reporter_->is_ours();
    }
  }

  // Of ranks that have met.
  bool reports() const { return rank_ == 0 && !is_silent_; }

  void add_early(const char* check, Finding finding) {
    finding.check = check;
    early_.push_back(std::move(finding));
  }

  // Ranks that met with different settings can still exchange their facts.
  bool meet() {
    if (!may_meet_) return false;
    watchdog_.begin(kRendezvous, 2 * timeout_ + kSlack);
    try {
      comm::join_ranks(*runtime_, timeout_);
    } catch (const std::exception& error) {
      add_early(kRendezvous, failure_of(error));
      if (!dynamic_cast<const InputError*>(&error) || !runtime_->has_met()) return false;
    }
    set_job(runtime_->job());
    session_.emplace(*runtime_, settings_, own_, timeout_);
    try {
      session_->round([this] { return Session::Json(own_); },
                      [this](const std::vector<Session::Json>& values) -> Session::Json {
                        for (const auto& value : values)
                          session_->cluster.ranks.push_back(value.get<RankFacts>());
                        return {};
                      });
    } catch (const RoundFailed& failed) {
      if (early_.empty()) add_early(kRendezvous, failed.findings.front());
      return false;
    }
    if (reports()) output_.set_cluster(session_->cluster, 0);
    return true;
  }

  int measure() {
    for (const Measurement& measurement : kMeasurements) {
      watchdog_.begin(measurement.name, kMeasure);
      Findings findings;
      try {
        measurement.run(*session_, findings);
      } catch (const RoundFailed& failed) {
        append(findings, failed.findings);
      } catch (const std::exception& error) {
        findings.push_back(failure_of(error));
      }
      for (Finding& finding : findings) finding.check = measurement.name;
      if (session_->is_broken()) return end_broken_session(findings);
      if (reports()) output_.add(findings);
    }
    watchdog_.begin("the end", kMeasure);
    if (reports()) output_.finish();
    // rank 0's verdict is everyone's; a phantom that is silent has failed
    const bool failed = runtime_->broadcast(is_silent_ || output_.has_failure() ? "failed" : "") == "failed";
    runtime_.reset();
    return failed ? kFailed : kDone;
  }

  // A rank that is stopped never comes to the end, so the others do not wait for it.
  int end_broken_session(const Findings& findings) {
    if (std::ranges::count(session_->lost(), 0) > 0) return report_alone(findings);
    if (rank_ != 0) {
      std::this_thread::sleep_for(kAfterRankZero);
    } else {
      output_.add(findings);
      output_.finish();
    }
    return exit_now();
  }

  // The ranks cannot meet: one on each host reports what it knows.
  int report_alone(const Findings& findings) {
    watchdog_.begin("reporting alone", kCollect);
    output_.set_cluster({{own_}}, rank_);
    if (rank_ > 0) std::this_thread::sleep_for(kAfterRankZero);
    const launch::ErrorReporter reporter(settings_.environment);
    if (reporter.is_ours()) {
      output_.add_facts(early_);
      output_.add(findings);
      output_.finish();
    } else {
      std::this_thread::sleep_for(kAfterRankZero);
    }
    return exit_now();
  }

  int exit_now() {
    if (runtime_->has_mpi() && own_.job.world > 1) runtime_->abort(kFailed);
    runtime_.reset();
    int size = 0;  // an MPI that was up before the environment was found wrong
    if (!launch::mpi_is_up()) return kFailed;
    mpi::calls().comm_size(mpi::Comm::world, &size);
    if (size == 1) mpi::calls().finalize();
    return kFailed;
  }

  // From the watchdog's thread: the other one hangs, or is interrupted.
  [[noreturn]] void end_early(int signal, const std::string& stage, milliseconds limit) {
    if (signal == 0 && rank_ > 0) std::this_thread::sleep_for(kAfterRankZero);
    ::signal(SIGALRM, SIG_DFL);
    ::alarm(signal == 0 ? kLastPrint : kLastPrintOnSignal);  // output may hang, too
    const launch::ErrorReporter reporter(settings_.environment);
    // a launcher that ends one rank ends all of them, so on a signal only rank 0 reports
    if (!is_silent_ && (rank_ == 0 || (signal == 0 && reporter.is_ours()))) report_end(signal, stage, limit);
    remove_probes();
    if (signal == 0) ::_exit(kFailed);
    ::signal(signal, SIG_DFL);
    ::raise(signal);
    ::_exit(128 + signal);
  }

  void report_end(int signal, const std::string& stage, milliseconds limit) {
    if (has_facts_) output_.add_facts(early_);
    Finding end =
        signal != 0
            ? failure(format("{} arrived during {}", launch::signal_name(signal), stage),
                      "find the sender: the scheduler, mpirun after another rank died, or a user")
            : failure(format("{} did not end within {} s", stage, limit.count() / 1000.0), remedy_of(stage));
    end.check = !has_facts_ ? "collection" : stage == kMpiInit ? kRendezvous : stage;
    output_.add({end});
    output_.finish();
  }

  std::string remedy_of(const std::string& stage) const {
    if (!has_facts_) return "check for a file system, driver or name service that does not answer";
    if (stage == kMpiInit)
      return "check for a rank that failed to start, or that another MPI's mpirun started";
    return "check for a stopped rank, and for a network or file system that does not answer";
  }

  const DoctorSettings& settings_;
  const milliseconds timeout_;
  RankFacts own_;
  std::unique_ptr<launch::Runtime> runtime_;
  std::optional<Session> session_;
  std::optional<launch::ErrorReporter> reporter_;  // of phantoms, to the end
  Findings early_;                                 // before the facts, in place of the check of that name
  bool may_meet_ = false;
  std::atomic<int> rank_ = 0;
  std::atomic<bool> has_facts_ = false, is_silent_ = false;
  Output output_;
  Watchdog watchdog_;  // last: it may end the process at once
};

}  // namespace

int run(const DoctorSettings& settings) {
  return Doctor(settings).run();
}

}  // namespace lockstep::doctor
