#include "tools/doctor/examine.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/comm/meet/gather_texts.h"
#include "lockstep/comm/meet/join.h"
#include "lockstep/launch/process/error_reporter.h"
#include "lockstep/launch/process/mpi.h"
#include "lockstep/launch/process/runtime.h"
#include "lockstep/launch/process/stop_signal.h"
#include "lockstep/launch/variables.h"
#include "tools/doctor/end_signals.h"
#include "tools/doctor/job/active.h"
#include "tools/doctor/job/probes.h"
#include "tools/doctor/node/collect.h"
#include "tools/doctor/node/judging.h"
#include "tools/doctor/telling.h"
#include "tools/doctor/watchdog.h"

namespace lockstep::doctor {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kCollect{10'000};       // for one collector
constexpr milliseconds kJoinPatience{15'000};  // for all ranks to come
constexpr milliseconds kSlack{5'000};   // so much later the layers below would speak in words of their own
constexpr milliseconds kLeave{10'000};  // for all ranks to come to the end
constexpr milliseconds kHearRankZero{2'000};  // it speaks first, and its launcher may end the others by then
constexpr milliseconds kTell{2'000};          // for the last words
constexpr milliseconds kTellOfSignal{900};    // mpirun sends SIGKILL a second after SIGTERM
constexpr const char* kJoinTimeout = "LOCKSTEP_JOIN_TIMEOUT";
constexpr const char* kStart = "MPI_Init";
constexpr const char* kMeeting = "meeting";
constexpr const char* kLauncher = "launcher";

// A person's shorter patience is the doctor's; a longer one would outlast it.
milliseconds patience_in(const launch::Environment& environment) {
  try {
    const auto seconds = launch::count_of(environment, kJoinTimeout);
    const auto patience =
        seconds ? std::min<milliseconds>(std::chrono::seconds(*seconds), kJoinPatience) : kJoinPatience;
    ::setenv(kJoinTimeout, std::to_string((patience + kSlack).count() / 1000).c_str(), 1);
    return patience;
  } catch (const Error&) {
    return kJoinPatience;  // whoever joins will say that it is no number
  }
}

struct Remedy {
  const char* stage;
  const char* what;
};

constexpr Remedy kRemedies[] = {
    {kStart, "look for a rank that failed to start, and for one that another MPI's mpirun started"},
    {"folders",
     "look for a file system that does not answer (ls, df and flock on the folders, on every node), and at "
     "its server and locks"},
};

std::string remedy_of_hang(const std::string& stage, bool collected) {
  if (!collected) return "look for a file system, a driver or a name service that does not answer";
  for (const Remedy& row : kRemedies)
    if (stage == row.stage) return row.what;
  return "look for a rank that was stopped, and for a network that does not answer";
}

class Examination {
 public:
  explicit Examination(const DoctorSettings& settings)
      : settings_(settings),
        patience_(patience_in(settings.environment)),
        telling_(settings),
        watchdog_(settings.limit,
                  [this](const std::string& stage, milliseconds limit) { give_up(stage, limit); }),
        signals_([this](int signal, bool was_stopped) { be_ended(signal, was_stopped); }) {
    telling_.rank = launch::rank_by_environment(settings.environment).rank;
  }

  int run() {
    if (telling_.rank == 0 && !settings_.report.empty()) base::check_output(settings_.report, kReportHint);
    own_ = collect(settings_,
                   [this](const char* name) { return watchdog_.stage(name, std::min(kCollect, patience_)); });
    guess_job();
    collected_ = true;
    start();
    meet();
    if (!telling_.heard) return leave_apart();
    if (telling_.speaks()) tell_facts();
    act();
    if (broken_) return leave_broken();
    watchdog_.now("telling all of it");
    if (telling_.speaks()) telling_.conclude();
    const bool failed = everybodys(telling_.silent || telling_.report_failed() ||
                                   telling_.ledger().verdict() == FindingLevel::failure);
    watchdog_.now("leaving MPI");
    runtime_.reset();
    return failed ? kFailed : kDone;
  }

 private:
  // What the environment says: for a rank that never learns more.
  void guess_job() {
    const auto self = launch::rank_by_environment(settings_.environment);
    own_.job.rank = self.rank;
    own_.job.world = self.world;
    try {
      own_.job.launcher = launch::detect_launcher(settings_.environment, settings_.launcher);
    } catch (const Error&) {  // start() will tell
    }
    telling_.know({{own_}});
  }

  // Where the environment cannot be right the process is looked at alone.
  void start() {
    const auto stage = watchdog_.stage(kStart, patience_);
    const launch::RuntimeOptions options{
        .phantoms = launch::Phantoms::allow, .join_timeout = patience_ + kSlack, .leave_timeout = kLeave};
    try {
      runtime_ = std::make_unique<launch::Runtime>(settings_.launcher, options);
    } catch (const std::exception& error) {
      telling_.failed_early(kLauncher, failure_of(error));
      may_meet_ = false;
      runtime_ = std::make_unique<launch::Runtime>("none", options);
    }
    take_job();
    heed_phantom();
  }

  // Of several that are each "rank 0 of 1" one a host speaks; one that takes another rank's place meets
  // nobody.
  void heed_phantom() {
    if (own_.job.phantom.empty()) return;
    may_meet_ = may_meet_ && own_.job.world == 1;
    if (own_.job.world > 1)
      return void(telling_.rank = launch::rank_by_environment(settings_.environment).rank);
    reporter_.emplace(settings_.environment);
    telling_.silent = !reporter_->is_ours();
  }

  void take_job() {
    own_.job = runtime_->job();
    if (may_meet_) telling_.rank = own_.job.rank;
    choose_gpu(own_);
    telling_.know({{own_}});
  }

  void meet() {
    const auto stage = watchdog_.stage(kMeeting, 2 * patience_ + kSlack);
    if (!may_meet_) return;
    try {
      join();
      take_job();
      comm::ask_rank_zero(
          *runtime_, pack(own_), [this](const auto& texts) { return read(texts); }, patience_);
      telling_.heard = true;
    } catch (const std::exception& error) {
      if (!std::exchange(met_with_failure_, true)) telling_.failed_early(kMeeting, failure_of(error));
    }
  }

  // Ranks that met and were told different things can still tell them.
  void join() {
    try {
      comm::join_ranks(*runtime_, patience_);
    } catch (const InputError& error) {
      if (!runtime_->has_met()) throw;
      met_with_failure_ = true;
      telling_.failed_early(kMeeting, failure_of(error));
    }
  }

  std::string read(const std::vector<std::string>& texts) {
    Picture picture;
    for (const auto& text : texts) picture.ranks.push_back(unpack(text));
    std::sort(picture.ranks.begin(), picture.ranks.end(),
              [](const RankFacts& a, const RankFacts& b) { return a.job.rank < b.job.rank; });
    telling_.know(std::move(picture));
    return "";
  }

  void tell_facts() {
    watchdog_.now("looking at the facts");
    telling_.facts();
  }

  // Each rank's rounds of one check are numbered alike, whatever became of it in the last one.
  void act() {
    Talk talk(*runtime_, patience_);
    Known known;
    const auto picture = telling_.picture();
    Ledger& ledger = telling_.ledger();
    int number = 0;
    for (const ActiveCheck& check : active_checks()) {
      if (talk.is_broken()) break;
      talk.begin(++number);
      const auto stage = watchdog_.stage(check.name, check.limit);
      try {
        ledger.add(check.name, check.run({*runtime_, settings_, own_, picture, talk, known}));
      } catch (const std::exception& error) {
        if (telling_.rank == 0 || talk.is_alone()) ledger.add(check.name, {failure_of(error)});
      }
      ledger.hide(known.paths);
    }
    broken_ = talk.is_broken();
    alone_ = talk.is_alone();
  }

  // A rank that is stopped comes to no end, and nobody waits for it.
  int leave_broken() {
    watchdog_.now("leaving a rank behind");
    if (telling_.rank != 0) std::this_thread::sleep_for(kHearRankZero);
    const launch::ErrorReporter reporter(settings_.environment);
    if (telling_.rank == 0 || (alone_ && reporter.is_ours())) {
      telling_.heard = telling_.rank == 0;
      if (alone_) telling_.everything();
      telling_.conclude();
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
    telling_.know({{own_}});
    if (telling_.rank > 0) std::this_thread::sleep_for(kHearRankZero);
    const launch::ErrorReporter reporter(settings_.environment);
    if (reporter.is_ours()) {
      tell_facts();
      telling_.conclude();
    } else {
      std::this_thread::sleep_for(kHearRankZero);
    }
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
    if (telling_.rank > 0) std::this_thread::sleep_for(kHearRankZero);
    last_words(
        kTell, [] { ::_exit(kFailed); },
        [&] {
          const launch::ErrorReporter reporter(settings_.environment);
          if (!telling_.silent && (telling_.rank == 0 || reporter.is_ours())) tell_hang(stage, limit);
        });
  }

  // From the thread that hears signals. Who ends one rank ends all, so rank 0 speaks: another one cannot tell
  // whether it has. Of a rank that was just stopped the others have told.
  [[noreturn]] void be_ended(int signal, bool was_stopped) {
    last_words(
        kTellOfSignal, [signal] { end_by(signal); },
        [&] {
          const bool others = launch::rank_by_environment(settings_.environment).world > 1;
          if (telling_.rank == 0 && !telling_.silent && !(was_stopped && others)) tell_signal(signal);
        });
  }

  // Telling may hang, too: behind a full pipe, or in what hung the other thread.
  [[noreturn]] void last_words(milliseconds time, const std::function<void()>& end,
                               const std::function<void()>& words) {
    std::thread([=] {
      std::this_thread::sleep_for(time);
      end();
    }).detach();
    words();
    remove_probes();
    end();
    std::abort();
  }

  void tell_so_far() {
    if (collected_) telling_.facts();
  }

  std::string name_of(const std::string& stage) const {
    return !collected_ ? "facts" : stage == kStart ? kMeeting : stage;
  }

  void tell_hang(const std::string& stage, milliseconds limit) {
    tell_so_far();
    const double seconds = static_cast<double>(limit.count()) / 1000;
    telling_.ledger().add(name_of(stage).c_str(), {fail(format("{} did not end within {} s", stage, seconds),
                                                        remedy_of_hang(stage, collected_))});
    telling_.conclude();
  }

  void tell_signal(int signal) {
    tell_so_far();
    const std::string stage = watchdog_.stage_now();
    telling_.ledger().add(name_of(stage).c_str(),
                          {fail(format("{} came meanwhile ({})", launch::signal_name(signal), stage),
                                "who sent it: the batch system at the job's end, mpirun after another rank "
                                "died, a person? Above is what was found by then")});
    telling_.conclude();
  }

  const DoctorSettings& settings_;
  const milliseconds patience_;
  RankFacts own_;
  std::unique_ptr<launch::Runtime> runtime_;
  std::optional<launch::ErrorReporter> reporter_;  // of phantoms, to the end
  bool may_meet_ = true, met_with_failure_ = false;
  std::atomic<bool> collected_ = false;
  bool broken_ = false, alone_ = false;  // a rank was not heard any more; that was rank 0
  Telling telling_;
  Watchdog watchdog_;  // it may bite at once, and so may they
  EndSignals signals_;
};

}  // namespace

int examine(const DoctorSettings& settings) {
  return Examination(settings).run();
}

}  // namespace lockstep::doctor
