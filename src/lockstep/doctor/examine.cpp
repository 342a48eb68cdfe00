#include "lockstep/doctor/examine.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/whole_file.h"
#include "lockstep/comm/meet/gather_texts.h"
#include "lockstep/comm/meet/join.h"
#include "lockstep/doctor/active.h"
#include "lockstep/doctor/anonymous.h"
#include "lockstep/doctor/checks.h"
#include "lockstep/doctor/collect.h"
#include "lockstep/doctor/ledger.h"
#include "lockstep/doctor/print.h"
#include "lockstep/doctor/watchdog.h"
#include "lockstep/launch/mpi.h"
#include "lockstep/launch/runtime.h"
#include "lockstep/launch/variables.h"
#include "lockstep/launch/voice.h"

namespace lockstep::doctor {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kCollect{10'000};   // for one collector
constexpr milliseconds kPatience{15'000};  // for all ranks to come
constexpr milliseconds kSlack{5'000};      // so much later the layers below would speak in words of their own
constexpr milliseconds kLeave{10'000};     // for all ranks to come to the end
constexpr milliseconds kHearRankZero{2'000};  // it speaks first, and its launcher may end the others by then
constexpr milliseconds kTell{2'000};          // for the last words
constexpr const char* kJoinTimeout = "LOCKSTEP_JOIN_TIMEOUT";
constexpr const char* kReportHint = "give --report a file that can be written";
constexpr const char* kStart = "MPI_Init";
constexpr const char* kMeeting = "meeting";
constexpr const char* kLauncher = "launcher";

// A person's shorter patience is the doctor's; a longer one would outlast it.
milliseconds patience_in(const launch::Environment& environment) {
  try {
    const auto seconds = launch::count_of(environment, kJoinTimeout);
    const auto patience =
        seconds ? std::min<milliseconds>(std::chrono::seconds(*seconds), kPatience) : kPatience;
    ::setenv(kJoinTimeout, std::to_string((patience + kSlack).count() / 1000).c_str(), 1);
    return patience;
  } catch (const Error&) {
    return kPatience;  // whoever joins will say that it is no number
  }
}

Finding failure_of(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  const std::string what = error.what();
  const std::string where = known && !known->where().empty() ? " (" + known->where() + ")" : "";
  return fail(what.substr(0, what.find('\n')) + where, known ? known->hint() : "");
}

class Examination {
 public:
  explicit Examination(const Settings& settings)
      : settings_(settings),
        rank_(launch::rank_by_environment(settings.environment).rank),
        patience_(patience_in(settings.environment)),
        watchdog_(settings.limit,
                  [this](const std::string& stage, milliseconds limit) { give_up(stage, limit); }) {}

  int run() {
    if (rank_ == 0 && !settings_.report.empty()) base::check_output(settings_.report, kReportHint);
    own_ = collect(settings_,
                   [this](const char* name) { return watchdog_.stage(name, std::min(kCollect, patience_)); });
    guess_job();
    collected_ = true;
    start();
    meet();
    if (!heard_) return leave_apart();
    if (speaks()) tell_facts();
    act();
    if (broken_) return leave_broken();
    watchdog_.now("telling all of it");
    if (speaks()) conclude();
    const bool failed = everybodys(report_failed_ || ledger_.verdict() == Verdict::failure);
    watchdog_.now("leaving MPI");
    runtime_.reset();
    return failed ? kFailed : kDone;
  }

 private:
  bool speaks() const { return !heard_ || rank_ == 0; }

  // What the environment says: for a rank that never learns more.
  void guess_job() {
    const auto told = launch::rank_by_environment(settings_.environment);
    own_.job.rank = told.rank;
    own_.job.world = told.world;
    try {
      own_.job.launcher = launch::detect_launcher(settings_.environment, settings_.launcher);
    } catch (const Error&) {  // start() will tell
    }
  }

  // Where the environment cannot be right the process is looked at alone.
  void start() {
    const auto stage = watchdog_.stage(kStart, patience_);
    const launch::RuntimeOptions options{
        .phantoms = launch::Phantoms::allow, .join_timeout = patience_ + kSlack, .leave_timeout = kLeave};
    try {
      runtime_ = std::make_unique<launch::Runtime>(settings_.launcher, options);
    } catch (const std::exception& error) {
      start_failure_ = failure_of(error);
      runtime_ = std::make_unique<launch::Runtime>("none", options);
    }
    take_job();
  }

  void take_job() {
    own_.job = runtime_->job();
    if (!start_failure_) rank_ = own_.job.rank;
    choose_gpu(own_);
  }

  void meet() {
    const auto stage = watchdog_.stage(kMeeting, 2 * patience_ + kSlack);
    if (start_failure_) return;
    try {
      join();
      take_job();
      comm::ask_rank_zero(
          *runtime_, pack(own_), [this](const auto& texts) { return read(texts); }, patience_);
      heard_ = true;
    } catch (const std::exception& error) {
      if (!meeting_failure_) meeting_failure_ = failure_of(error);
    }
  }

  // Ranks that met and were told different things can still tell them.
  void join() {
    try {
      comm::join_ranks(*runtime_, patience_);
    } catch (const InputError& error) {
      if (!runtime_->has_met()) throw;
      meeting_failure_ = failure_of(error);
    }
  }

  std::string read(const std::vector<std::string>& texts) {
    for (const auto& text : texts) picture_.ranks.push_back(unpack(text));
    std::sort(picture_.ranks.begin(), picture_.ranks.end(),
              [](const Facts& a, const Facts& b) { return a.job.rank < b.job.rank; });
    return "";
  }

  void tell_facts() {
    watchdog_.now("looking at the facts");
    told_ = true;  // or begun: who hangs in it is not to be followed
    if (!settings_.json) say(heading());
    if (start_failure_) ledger_.add(kLauncher, {*start_failure_});
    if (meeting_failure_) ledger_.add(kMeeting, {*meeting_failure_});
    for (const Check& check : checks()) {
      if (start_failure_ && check.name == std::string(kLauncher)) continue;
      for (Finding& finding : judge(check, picture_)) ledger_.add(std::move(finding));
    }
  }

  // Each rank's rounds of one check are numbered alike, whatever became of it in the last one.
  void act() {
    Talk talk(*runtime_, patience_);
    Known known;
    int number = 0;
    for (const ActiveCheck& check : active_checks()) {
      if (talk.is_broken()) break;
      talk.begin(++number);
      const auto stage = watchdog_.stage(check.name, check.limit);
      try {
        ledger_.add(check.name, check.run({*runtime_, settings_, own_, picture_, talk, known}));
      } catch (const std::exception& error) {
        if (rank_ == 0 || talk.is_alone()) ledger_.add(check.name, {failure_of(error)});
      }
      ledger_.hide(known.paths);
    }
    broken_ = talk.is_broken();
    alone_ = talk.is_alone();
  }

  // A rank that is stopped comes to no end, and nobody waits for it.
  int leave_broken() {
    watchdog_.now("leaving a rank behind");
    if (rank_ != 0) std::this_thread::sleep_for(kHearRankZero);
    const launch::Voice voice(settings_.environment);
    if (rank_ == 0 || (alone_ && voice.is_ours())) {
      heard_ = rank_ == 0;
      if (alone_) show_all();
      conclude();
    }
    return end_apart();
  }

  // Rank 0's word, since it alone told anybody.
  bool everybodys(bool failed) {
    watchdog_.now("telling the outcome");
    return runtime_->broadcast(failed ? "failed" : "") == "failed";
  }

  // The ranks could not be heard: one a host says what it sees.
  int leave_apart() {
    watchdog_.now("speaking alone");
    picture_.ranks = {own_};
    if (rank_ > 0) std::this_thread::sleep_for(kHearRankZero);
    const launch::Voice voice(settings_.environment);
    if (voice.is_ours()) {
      tell_facts();
      conclude();
    } else {
      std::this_thread::sleep_for(kHearRankZero);
    }
    std::fflush(stdout);
    return end_apart();
  }

  int end_apart() {
    if (runtime_->has_mpi() && own_.job.world > 1)
      runtime_->abort(kFailed);  // some may never come to the end
    runtime_.reset();
    finish_foreign_mpi();
    return kFailed;
  }

  // an MPI that was up before the environment was found wrong
  static void finish_foreign_mpi() {
    int size = 0;
    if (!launch::mpi_is_up()) return;
    mpi::calls().comm_size(mpi::Comm::world, &size);
    if (size == 1) mpi::calls().finalize();
  }

  // From the watchdog's thread: the other one hangs.
  [[noreturn]] void give_up(const std::string& stage, milliseconds limit) {
    if (rank_ > 0) std::this_thread::sleep_for(kHearRankZero);
    std::thread([] {  // telling may hang, too: behind a full pipe, or in what hung the other thread
      std::this_thread::sleep_for(kTell);
      ::_exit(kFailed);
    })
        .detach();
    const launch::Voice voice(settings_.environment);
    if (rank_ == 0 || voice.is_ours()) tell_hang(stage, limit);
    std::fflush(stdout);
    ::_exit(kFailed);
  }

  void tell_hang(const std::string& stage, milliseconds limit) {
    if (collected_ && !told_) {
      if (picture_.ranks.empty()) picture_.ranks = {own_};
      tell_facts();
    }
    const double seconds = static_cast<double>(limit.count()) / 1000;
    const std::string check = !collected_ ? "facts" : stage == kStart ? kMeeting : stage;
    ledger_.add(check.c_str(),
                {fail(format("{} did not end within {} s", stage, seconds), remedy_of_hang(stage))});
    conclude();
  }

  std::string remedy_of_hang(const std::string& stage) const {
    if (!collected_) return "look for a file system, a driver or a name service that does not answer";
    if (stage == kStart)
      return "look for a rank that failed to start, and for one that another MPI's mpirun started";
    return "look for a rank that was stopped, and for a network that does not answer";
  }

  void conclude() {
    const double seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
    const std::string json = as_json(ledger_.all(), picture_, seconds);
    say(settings_.json ? json : summary(ledger_.all(), seconds));
    std::fflush(stdout);
    if (!settings_.report.empty()) write_report(json);
  }

  void write_report(const std::string& json) {
    try {
      auto secrets = secrets_of(picture_, settings_.environment);
      for (const auto& path : ledger_.hidden()) secrets["path"].push_back(path);
      base::write_output(settings_.report, anonymous(json, secrets), kReportHint);
    } catch (const std::exception& error) {
      log::error(describe(error));  // also from the watchdog's thread
      report_failed_ = true;
    }
  }

  std::string heading() const {
    const Job& job = picture_.ranks.front().job;
    return format("{}{} rank{} on {} node{}, launcher {}\n", tag(), job.world, job.world == 1 ? "" : "s",
                  job.nodes, job.nodes == 1 ? "" : "s", job.launcher);
  }

  // a rank that speaks for itself alone says which it is
  std::string tag() const { return heard_ || own_.job.world == 1 ? "" : format("[rank {}] ", rank_.load()); }

  static void say(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

  void show(const Finding& finding) {
    if (settings_.json || !speaks()) return;
    say(as_text(finding, tag()));
    std::fflush(stdout);
  }

  void show_all() {
    for (const Finding& finding : ledger_.all()) show(finding);
  }

  const Settings& settings_;
  const Clock::time_point begun_ = Clock::now();
  std::atomic<int> rank_;
  const milliseconds patience_;
  Facts own_;
  Picture picture_;
  std::unique_ptr<launch::Runtime> runtime_;
  std::optional<Finding> start_failure_, meeting_failure_;
  Ledger ledger_{[this](const Finding& finding) { show(finding); }};
  bool report_failed_ = false;
  std::atomic<bool> collected_ = false, told_ = false, heard_ = false;
  bool broken_ = false, alone_ = false;  // a rank was not heard any more; that was rank 0
  Watchdog watchdog_;                    // last: it may bite at once
};

}  // namespace

int examine(const Settings& settings) {
  return Examination(settings).run();
}

}  // namespace lockstep::doctor
