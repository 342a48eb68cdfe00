#include "lockstep/cli/submit_wait.h"

#include <signal.h>

#include <algorithm>
#include <list>
#include <optional>
#include <set>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/output.h"
#include "lockstep/base/text.h"
#include "lockstep/cluster/log_tail.h"
#include "lockstep/cluster/watch.h"
#include "lockstep/launch/terminal.h"
#include "lockstep/report/run_list.h"
#include "lockstep/run_folder/console.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using cluster::Standing;

constexpr auto kLook = 200ms;
constexpr auto kLog = 3s;  // from a job's end to its log's: PBS copies it only then
constexpr int kInterrupted = 128 + SIGINT;

volatile sig_atomic_t interrupted = 0;

// Ctrl-C is for us alone: the job goes on.
class Interrupts {
 public:
  Interrupts() {
    struct sigaction now = {};
    now.sa_handler = [](int) { interrupted = 1; };
    for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &now, &before_[i]);
  }
  ~Interrupts() {
    for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

 private:
  static constexpr std::array<int, 2> kSignals = {SIGINT, SIGTERM};
  std::array<struct sigaction, 2> before_{};
};

// What a person sees of one job.
class Screen {
 public:
  explicit Screen(const Submission& submission) : submission_(submission) {}

  void show(const Standing& standing) {
    if (standing.job != job_) follow(standing.job);
    pass_on_logs(false);
    const auto said = sentence(standing);
    if (said != said_) log::info(said_ = said);
    if (standing.phase == Standing::running)
      show_progress(standing);
    else
      console_.progress(said);
  }

  void end(const Standing& standing) {
    if (standing.job != job_) follow(standing.job);
    for (const auto until = Clock::now() + kLog; !logs_.back().has_spoken() && Clock::now() < until;) {
      std::this_thread::sleep_for(kLook / 2);
      pass_on_logs(false);
    }
    pass_on_logs(true);
    console_.line(last_word(standing));
  }

  run_folder::Console& console() { return console_; }

 private:
  void follow(const std::string& job) {
    job_ = job;
    logs_.emplace_back(cluster::log_of(submission_.site.scheduler, submission_.name, job));
  }

  // the one before may come when the next one runs
  void pass_on_logs(bool at_end) {
    for (auto& log : logs_) log.pass_on([this](const std::string& line) { console_.line(line); }, at_end);
  }

  static std::string sentence(const Standing& standing) {
    const auto restart = standing.restarts > 0 ? format(" (restart {})", standing.restarts) : "";
    const auto words = standing.words.empty() ? "" : ": " + standing.words;
    if (standing.phase == Standing::running) return format("job {} runs{}", standing.job, restart);
    if (standing.phase == Standing::again) return format("job {} is to start again{}", standing.job, words);
    return format("job {} is queued{}", standing.job, words);
  }

  // a log that grows says it better, but for a terminal's last line
  void show_progress(const Standing& standing) {
    if (standing.folder.empty() || Clock::now() - looked_ < 1s) return;
    looked_ = Clock::now();
    try {
      const auto status = run_folder::read_status(standing.folder);
      const auto text = format("job {}: {}, epoch {} of {}, step {}", standing.job,
                               standing.folder.filename().string(), status.epoch, status.epochs, status.step);
      console_.progress(text);
      if (status.epoch == epoch_ || std::ranges::any_of(logs_, &cluster::LogTail::has_spoken)) return;
      epoch_ = status.epoch;
      log::info(text);
    } catch (const Error&) {  // not written yet, or gone
    }
  }

  std::string last_word(const Standing& standing) const {
    const auto folder = standing.folder.empty() ? "" : format(" ({})", standing.folder.string());
    if (!standing.verdict.empty())
      return format("job {}: {}{}", standing.job, standing.verdict.substr(0, standing.verdict.find('\n')),
                    folder);
    if (standing.lost)
      return format("job {} ended without a word: cancelled, killed or out of time? Its log: {}",
                    standing.job, logs_.back().path().string());
    return format("job {} ended with status {}, and left no run: {} says why", standing.job, standing.status,
                  logs_.back().path().string());
  }

  const Submission& submission_;
  run_folder::Console console_{true};
  std::string job_, said_;
  std::list<cluster::LogTail> logs_;
  Clock::time_point looked_{};
  int64_t epoch_ = 0;
};

int leave_alone(const Submission& submission) {
  log::info("no longer waiting: the job goes on by itself\n" + how_to_follow(submission));
  return kInterrupted;
}

void say(const std::optional<std::string>& text) {
  if (text) log::warning(*text);
}

// Nothing where somebody has interrupted us.
std::optional<Standing> wait_for_one(const Submission& submission, const SubmittedJob& job) {
  Screen screen(submission);
  cluster::Asking asking(submission.site.scheduler);
  std::vector<cluster::Watch> watches{cluster::Watch(job.id, job.record)};
  for (; !watches[0].over(); std::this_thread::sleep_for(kLook)) {
    if (interrupted) return std::nullopt;
    const auto& standing = watches[0].look();
    if (standing.phase != Standing::over) screen.show(standing);
    say(asking.ask(watches));
  }
  screen.end(watches[0].standing());
  return watches[0].standing();
}

// A link that stops early hands over to the next; one that finds nothing to do has no run of its own.
int wait_for_chain(const Submission& submission) {
  int status = kFailed;
  for (size_t i = 0; i < submission.jobs.size(); ++i) {
    if (submission.jobs.size() > 1) log::info(format("link {} of {}", i + 1, submission.jobs.size()));
    const auto standing = wait_for_one(submission, submission.jobs[i]);
    if (!standing) return leave_alone(submission);
    if (i == 0 || !standing->folder.empty()) status = standing->status;
    if (status != kStoppedEarly || standing->status != kStoppedEarly) return status;
  }
  return status;
}

void say_ended(const SubmittedJob& job, const Standing& standing, run_folder::Console& console) {
  const auto end = standing.verdict.empty() ? format("no run, status {}", standing.status)
                                            : standing.verdict.substr(0, standing.verdict.find('\n'));
  console.line(format("task {} ({}): {}", job.id, base::printable(job.what), end));
}

void show_counts(const std::vector<cluster::Watch>& watches, run_folder::Console& console) {
  const auto count = [&](Standing::Phase phase) {
    return std::ranges::count_if(watches, [&](const auto& one) { return one.standing().phase == phase; });
  };
  console.progress(format("{} tasks: {} queued, {} running, {} over", watches.size(),
                          count(Standing::queued) + count(Standing::again), count(Standing::running),
                          count(Standing::over)));
}

void print_table(const std::vector<cluster::Watch>& watches) {
  std::vector<fs::path> folders;
  for (const auto& watch : watches) {
    if (!watch.standing().folder.empty()) folders.push_back(watch.standing().folder);
  }
  const auto list = report::list_runs(folders);
  for (const auto& [folder, why] : list.passed_over) log::warning(format("passed over: {}: {}", folder, why));
  const auto terminal = launch::terminal_behind(1);
  output::print("\n" + report::run_table(list, terminal ? terminal->width() : 0));
}

// That of all where they agree.
int status_of(const std::vector<cluster::Watch>& watches) {
  std::set<int> all;
  for (const auto& watch : watches) all.insert(watch.standing().status);
  return all.size() == 1 ? *all.begin() : kFailed;
}

int wait_for_sweep(const Submission& submission) {
  std::vector<cluster::Watch> watches;
  for (const auto& job : submission.jobs) watches.emplace_back(job.id, job.record);
  cluster::Asking asking(submission.site.scheduler);
  run_folder::Console console(true);
  size_t over = 0;
  while (over < watches.size()) {
    if (interrupted) return console.clear(), leave_alone(submission);
    for (size_t i = 0; i < watches.size(); ++i) {
      if (watches[i].over() || watches[i].look().phase != Standing::over) continue;
      ++over;
      say_ended(submission.jobs[i], watches[i].standing(), console);
    }
    show_counts(watches, console);
    say(asking.ask(watches));
    if (over < watches.size()) std::this_thread::sleep_for(kLook);
  }
  console.clear();
  print_table(watches);
  return status_of(watches);
}

}  // namespace

std::string how_to_follow(const Submission& submission) {
  const auto& scheduler = submission.site.scheduler;
  const auto& first = submission.jobs.front().id;
  std::vector<std::string> cancel;
  for (const auto& job : submission.jobs) cancel.push_back(cluster::how_to_cancel(scheduler, job.id));
  const auto all = submission.sweep ? cluster::array_of(first) : first;
  return format(
      "log: {}; look: {}; results: lockstep runs\nstop: lockstep stop RUN_FOLDER (with a checkpoint), or {}",
      cluster::log_of(scheduler, submission.name, submission.sweep ? first : all),
      cluster::how_to_look(scheduler, all),
      submission.sweep ? cluster::how_to_cancel(scheduler, all) : base::join(cancel, "; "));
}

int wait_for(const Submission& submission) {
  interrupted = 0;
  const Interrupts interrupts;
  return submission.sweep ? wait_for_sweep(submission) : wait_for_chain(submission);
}

}  // namespace lockstep::cli
