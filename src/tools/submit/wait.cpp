// lockstep submit --wait: follows a job's log and progress to its end.
#include "tools/submit/submission.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <list>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/terminal.h"
#include "tools/cluster/scheduler.h"
#include "tools/cluster/watch.h"
#include "tools/report/run_list.h"
#include "trainer/run_folder/console.h"

namespace lockstep::submit {
namespace {

volatile sig_atomic_t interrupted = 0;
std::atomic<const std::string*> answer = nullptr;

void note(int) {
  const int before = errno;  // of the call that is interrupted
  interrupted = 1;
  const std::string* text = answer;
  [[maybe_unused]] const auto written = text ? ::write(STDERR_FILENO, text->data(), text->size()) : 0;
  errno = before;
}

bool is_ignored(int signal) {
  struct sigaction now = {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

Interrupts::Interrupts() {
  interrupted = 0;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    const bool hangup = kSignals[i] == SIGHUP;
    struct sigaction now = {};
    now.sa_handler = hangup && is_ignored(SIGHUP) ? SIG_IGN : note;
    now.sa_flags = hangup ? 0 : static_cast<int>(SA_RESETHAND);
    ::sigaction(kSignals[i], &now, &before_[i]);
  }
}

Interrupts::~Interrupts() {
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
}

bool Interrupts::came() {
  return interrupted != 0;
}

Interrupts::Answered::Answered(std::string text) : text_(std::move(text)) {
  answer = &text_;
}

Interrupts::Answered::~Answered() {
  answer = nullptr;
}

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using cluster::Standing;

constexpr auto kBetweenLooks = 200ms, kLook = 100ms;
constexpr auto kStill = 500ms;  // a log that is being copied grows

// From a job's end to its log's: PBS copies it only then, and over a network; Slurm writes it where it is.
std::chrono::seconds longest_copy(const std::string& scheduler, const Standing& standing) {
  return scheduler == "slurm" || standing.lost ? 3s : 30s;
}

std::string sentence(const Standing& standing) {
  const auto restart = standing.restarts > 0 ? format(" (restart {})", standing.restarts) : "";
  const auto words = standing.words.empty() ? "" : ": " + standing.words;
  if (standing.phase == Standing::running) return format("job {} runs{}", standing.job, restart);
  if (standing.phase == Standing::ending)
    return format("job {}: its script has ended; asking the scheduler whether it starts again", standing.job);
  if (standing.phase == Standing::again) return format("job {} is to start again{}", standing.job, words);
  if (standing.phase == Standing::missing)
    return format("the scheduler does not know job {}; waiting for a word of it, for {} s at most",
                  standing.job,
                  std::chrono::duration_cast<std::chrono::seconds>(cluster::JobPatience().unknown).count());
  return format("job {} is queued{}", standing.job, words);
}

// "lockstep-7.out", and whether it is there
std::string place_of(const std::filesystem::path& log) {
  std::error_code none;
  return log.string() + (std::filesystem::exists(log, none) ? "" : ", which is not there");
}

// How it ended: by its run's own word, else by what its scheduler says and where its log is.
std::string end_of(const Standing& standing, const std::filesystem::path& log) {
  const auto folder = standing.folder.empty() ? "" : format(" ({})", standing.folder.string());
  if (!standing.verdict.empty())
    return format("{}{}", standing.verdict.substr(0, standing.verdict.find('\n')), folder);
  if (!standing.lost)
    return format("ended with status {}, and left no run: {} says why", standing.status, log.string());
  const auto known = standing.words.empty() ? "cancelled, killed or out of time?"
                                            : format("the scheduler says {}.", standing.words);
  return format("ended without a word: {} Its log: {}", known, place_of(log));
}

// What a person sees of one job that is waited for: its state, its log, its progress and its end.
class JobScreen {
 public:
  // `name` of the job, as its log has it
  JobScreen(std::string scheduler, std::string name)
      : scheduler_(std::move(scheduler)), name_(std::move(name)) {}

  void show(const Standing& standing) {
    follow(standing.job);
    pass_on_logs(false);
    const auto said = sentence(standing);
    if (said != said_) log::info(said_ = said);
    if (standing.phase == Standing::running)
      show_progress(standing);
    else
      console_.progress(said);
  }

  // Waits for the log's end, for a while, and says how the job ended.
  void end(const Standing& standing) {
    follow(standing.job);
    wait_for_log(longest_copy(scheduler_, standing));
    pass_on_logs(true);
    console_.line(format("job {}{} {}", standing.job, standing.verdict.empty() ? "" : ":",
                         end_of(standing, logs_.back().path())));
  }

 private:
  using Clock = std::chrono::steady_clock;

  void follow(const std::string& job) {
    if (job == std::exchange(job_, job)) return;
    logs_.emplace_back(cluster::log_of(scheduler_, name_, job));
  }

  // The one before may come when the next one runs.
  void pass_on_logs(bool at_end) {
    for (auto& log : logs_) log.pass_on([this](const std::string& line) { console_.line(line); }, at_end);
  }

  // Until it is there and grows no more.
  void wait_for_log(std::chrono::seconds longest) {
    auto& log = logs_.back();
    const auto until = Clock::now() + longest;
    auto still_since = Clock::now();
    for (auto size = log.size(); Clock::now() < until && !Interrupts::came(); size = log.size()) {
      pass_on_logs(false);
      if (log.size() != size) still_since = Clock::now();
      if (log.has_spoken() && (scheduler_ == "slurm" || Clock::now() - still_since > kStill)) return;
      if (!log.has_spoken()) console_.progress(format("waiting for {}", log.path().string()));
      std::this_thread::sleep_for(kLook);
    }
    if (!log.has_spoken() && !Interrupts::came())
      log::warning(
          format("{} has not come within {} s of the job's end", log.path().string(), longest.count()));
  }

  // A log that grows says it better, but for a terminal's last line.
  void show_progress(const Standing& standing) {
    if (standing.folder.empty() || Clock::now() - looked_ < 1s) return;
    looked_ = Clock::now();
    try {
      const auto status = run_folder::read_status(standing.folder);
      const auto text = format("job {}: {}, {} of {} epochs, step {}", standing.job,
                               standing.folder.filename().string(), status.epoch, status.epochs, status.step);
      console_.progress(text);
      if (status.epoch == epoch_ || std::ranges::any_of(logs_, &cluster::LogTail::has_spoken)) return;
      epoch_ = status.epoch;
      log::info(text);
    } catch (const Error&) {  // not written yet, or gone
    }
  }

  std::string scheduler_, name_, job_, said_;
  run_folder::Console console_{true};
  std::list<cluster::LogTail> logs_;
  Clock::time_point looked_{};
  int64_t epoch_ = 0;
};

void say(const std::optional<std::string>& text) {
  if (text) log::warning(*text);
}

// Nothing where somebody has interrupted us.
std::optional<Standing> wait_for_one(const Submission& submission, const SubmittedJob& job) {
  JobScreen screen(submission.scheduler.name, submission.name);
  cluster::SchedulerPoll asking(submission.scheduler);
  std::vector<cluster::JobWatch> watches{cluster::JobWatch(job.id, job.record)};
  for (; !watches[0].over(); std::this_thread::sleep_for(kBetweenLooks)) {
    if (Interrupts::came()) return std::nullopt;
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
    if (!standing) return detach(submission);
    if (i == 0 || !standing->folder.empty()) status = standing->status;
    if (status != kStoppedEarly || standing->status != kStoppedEarly) return status;
  }
  return status;
}

void say_ended(const Submission& submission, const SubmittedJob& job, const Standing& standing,
               run_folder::Console& console) {
  const auto log = cluster::log_of(submission.scheduler.name, submission.name, standing.job);
  console.line(format("task {} ({}): {}", job.id, base::printable(job.what), end_of(standing, log)));
}

std::string counts(const std::vector<cluster::JobWatch>& watches) {
  const auto count = [&](Standing::Phase phase) {
    return std::ranges::count_if(watches, [&](const auto& one) { return one.standing().phase == phase; });
  };
  const auto missing = count(Standing::missing);
  return format("{} tasks: {} queued, {} running, {} over{}", watches.size(),
                count(Standing::queued) + count(Standing::again),
                count(Standing::running) + count(Standing::ending), count(Standing::over),
                missing > 0
                    ? format(", {} that the scheduler does not know (waiting for a word of them)", missing)
                    : "");
}

bool any_missing(const std::vector<cluster::JobWatch>& watches) {
  return std::ranges::any_of(watches,
                             [](const auto& watch) { return watch.standing().phase == Standing::missing; });
}

void print_sweep(const std::vector<cluster::JobWatch>& watches) {
  std::vector<fs::path> folders;
  for (const auto& watch : watches) {
    if (!watch.standing().folder.empty()) folders.push_back(watch.standing().folder);
  }
  const auto list = report::list_runs(folders);
  for (const auto& [folder, why] : list.passed_over) log::warning(format("skipped: {}: {}", folder, why));
  const auto terminal = launch::terminal_behind(1);
  output::print("\n" + report::run_table(list, terminal ? terminal->width() : 0));
}

// That of all where they agree.
int status_of(const std::vector<cluster::JobWatch>& watches) {
  std::set<int> all;
  for (const auto& watch : watches) all.insert(watch.standing().status);
  return all.size() == 1 ? *all.begin() : kFailed;
}

int wait_for_sweep(const Submission& submission) {
  std::vector<cluster::JobWatch> watches;
  for (const auto& job : submission.jobs) watches.emplace_back(job.id, job.record);
  cluster::SchedulerPoll asking(submission.scheduler);
  run_folder::Console console(true);
  size_t over = 0;
  bool missing = false;
  while (over < watches.size()) {
    if (Interrupts::came()) return console.clear(), detach(submission);
    for (size_t i = 0; i < watches.size(); ++i) {
      if (watches[i].over() || watches[i].look().phase != Standing::over) continue;
      ++over;
      say_ended(submission, submission.jobs[i], watches[i].standing(), console);
    }
    console.progress(counts(watches));
    if (any_missing(watches) != missing && (missing = !missing)) log::info(counts(watches));
    say(asking.ask(watches));
    if (over < watches.size()) std::this_thread::sleep_for(kBetweenLooks);
  }
  console.clear();
  print_sweep(watches);
  return status_of(watches);
}

}  // namespace

int detach(const Submission& submission) {
  log::info("no longer waiting: the job goes on by itself\n" + how_to_follow(submission));
  return kInterrupted;
}

int wait_for(const Submission& submission) {
  return submission.sweep ? wait_for_sweep(submission) : wait_for_chain(submission);
}

}  // namespace lockstep::submit
