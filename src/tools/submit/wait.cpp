// lockstep submit --wait: follows a job's log and progress to its end.
#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/terminal.h"
#include "tools/report/run_list.h"
#include "tools/submit/submission.h"
#include "trainer/run_folder/console.h"

namespace lockstep::submit {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using cluster::JobState;
using Clock = std::chrono::steady_clock;
using Watches = std::vector<JobWatch>;

void add_line(JobRecord& record, const std::string& line) {
  std::istringstream words(line);
  std::string event, job, rest;
  words >> event >> job;
  if (record.job.empty()) record.job = job;
  if (job != record.job) return;  // a job that was replaced, and is started again
  if (int status = 0; event == "end" && words >> status) record.status = status;
  std::getline(words >> std::ws, rest);
  if (event == "begin") {
    record.restarts += record.started ? 1 : 0;
    record.started = true;
    record.status.reset();
  } else if (event == "file") {
    record.run_file = rest;
  } else if (event == "next") {
    record.job = rest;
    record.replaced = true;
  } else if (event == "end" && !rest.empty()) {
    record.folder = rest;
  }
}

// A relative path starts at the folder of submission, which is the working directory.
fs::path folder_of(const JobRecord& record) {
  return record.folder.empty() ? fs::path(base::first_line(record.run_file)) : record.folder;
}

std::optional<run_folder::StatusReport> report_on(const fs::path& folder) {
  if (folder.empty()) return std::nullopt;
  try {
    return run_folder::job_status(folder);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

JobRecord parse_record(const std::string& text) {
  JobRecord record;  // a line that is still being written does not count
  for (size_t from = 0, end = 0; (end = text.find('\n', from)) != std::string::npos; from = end + 1)
    add_line(record, text.substr(from, end - from));
  return record;
}

void JobWatch::set_state(const JobState& answer) {
  const bool is_gone = answer.kind == JobState::gone || answer.kind == JobState::unknown;
  if (!is_gone || !state || state->kind != answer.kind) since_ = Clock::now();
  state = answer;
}

JobWatch::Phase JobWatch::update() {
  if (phase == over) return phase;
  std::ostringstream stream;
  stream << std::ifstream(file_).rdbuf();
  const auto text = stream.str();
  const bool is_new = text != text_;
  if (is_new) {  // the job may start again whatever its script ended with, so only later answers count
    text_ = text;
    record = parse_record(text);
    state.reset();
    since_ = Clock::now();
  }
  if (is_new || folder.empty())
    if (const auto known = folder_of(record); !known.empty()) folder = known;
  if (is_new && record.status) report_ = report_on(folder);  // before a chain's next job changes it
  if (!is_over()) {
    const bool waits = state && state->kind == JobState::queued;
    return phase = waits || !record.started ? queued : running;
  }
  status = record.status.value_or(kFailed);
  const auto report = record.status ? report_ : report_on(folder);
  // A script that failed before it continued the run leaves the report of the start before, and the next job
  // of a chain may have changed it.
  const bool is_early = status == kStoppedEarly;
  if (report && (!record.status || is_early == (report->exit_status == kStoppedEarly))) {
    status = report->exit_status;
    verdict = report->text.substr(0, report->text.find('\n'));
  } else if (is_early) {
    verdict = "stopped early";
  }
  return phase = over;
}

bool JobWatch::is_over() const {
  const auto kind = state ? state->kind : JobState::running;
  const bool is_unknown = kind == JobState::unknown, is_gone = is_unknown || kind == JobState::gone;
  const auto waited = Clock::now() - since_;
  if (record.status) return is_gone || (kind != JobState::queued && waited > limits_.silent);
  if (!is_gone || waited <= (is_unknown ? limits_.unknown : limits_.over)) return false;
  // a run that is running keeps a job that the scheduler has lost
  const auto report = is_unknown ? report_on(folder) : std::nullopt;
  return !report || report->exit_status != run_folder::kRunning;
}

namespace {

// Between two looks at a job's files, which are on everyone's file system.
std::chrono::milliseconds pause_after(bool has_changed, std::chrono::milliseconds before) {
  return has_changed ? 1s : std::min<std::chrono::milliseconds>(before * 3 / 2, 10s);
}

// Queries the scheduler after a change of a record, and then less and less often. Warns while it does not
// answer.
class SchedulerPoll {
 public:
  explicit SchedulerPoll(const Submission& submission) : scheduler_(submission.scheduler) {}

  void query(Watches& watches) {
    std::vector<std::string> jobs;
    std::ptrdiff_t unknown = 0;
    for (const auto& watch : watches) {
      if (watch.phase == JobWatch::over) continue;
      jobs.push_back(watch.job());
      unknown += watch.state ? 0 : 1;
    }
    if (unknown > std::exchange(unknown_, unknown)) pause_ = 2500ms + watches.size() * 10ms;
    if (jobs.empty() || Clock::now() - asked_ < pause_) return;
    const auto [states, trouble] = cluster::query_jobs(scheduler_, jobs, run_);
    asked_ = Clock::now();
    pause_ = std::min<std::chrono::milliseconds>(2 * pause_, 30s);
    for (auto& watch : watches)
      if (const auto found = states.find(watch.job()); found != states.end()) watch.set_state(found->second);
    if (!states.empty()) answered_ = asked_;
    if (asked_ - answered_ <= 90s)
      has_warned_ = false;
    else if (!std::exchange(has_warned_, true))
      log::warning("the scheduler does not answer; still waiting: " + trouble);
  }

 private:
  cluster::Scheduler scheduler_;
  cluster::RunCommand run_ = cluster::real_commands(15s);
  std::ptrdiff_t unknown_ = 0;
  std::chrono::milliseconds pause_{};
  Clock::time_point asked_{}, answered_ = Clock::now();
  bool has_warned_ = false;
};

struct LogTail {
  fs::path path;
  size_t offset = 0;

  /// Prints each new line; an unfinished one only at the end.
  bool print_new(run_folder::Console& console, bool at_end) {
    const auto before = offset;
    std::error_code failed;
    if (fs::file_size(path, failed) < offset && !failed) offset = 0;  // truncated by a restarted job
    std::ifstream file(path, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    for (std::string line; std::getline(file, line);) {
      if (file.eof() && !at_end) break;
      offset += line.size() + (file.eof() ? 0 : 1);
      console.line(line);
    }
    return offset != before;
  }
};

std::string phase_in_words(const JobWatch& watch) {
  const auto restart = watch.record.restarts > 0 ? format(" (restart {})", watch.record.restarts) : "";
  if (watch.phase == JobWatch::running) return format("job {} is running{}", watch.job(), restart);
  const auto words = watch.state ? ": " + watch.state->words : "";
  return format("job {} is queued{}{}", watch.job(), restart, words);
}

// How it ended, by its run, its script or its scheduler.
std::string end_in_words(const JobWatch& watch, const fs::path& log) {
  if (!watch.verdict.empty())
    return watch.verdict + (watch.folder.empty() ? "" : format(" ({})", watch.folder.string()));
  if (watch.record.status)
    return format("exited with status {} without creating a run; see {}", watch.status, log.string());
  std::error_code none;
  const bool has_log = watch.record.started || fs::exists(log, none);
  return format("ended without a result ({}){}", watch.state ? watch.state->words : "",
                has_log ? "; see " + log.string() : ", before it started");
}

class JobScreen {
 public:
  explicit JobScreen(const Submission& submission) : submission_(submission) {}

  /// Returns whether anything has changed.
  bool show(const JobWatch& watch) {
    bool is_new = print_logs(watch, false);
    const auto words = phase_in_words(watch);
    if (words != shown_) {
      is_new = true;
      log::info(shown_ = words);
    }
    const auto progress = progress_of(watch);
    console_.progress(progress.empty() ? words : progress);
    return is_new;
  }

  void finish(const JobWatch& watch) {
    // PBS copies the log when the job has ended; Slurm writes it in place
    const bool is_slurm = submission_.scheduler.slurm();
    const auto limit = is_slurm || !watch.record.status ? 3s : 30s;
    const auto until = Clock::now() + limit;
    print_logs(watch, false);
    const auto& log = logs_.back().path;
    std::error_code none;
    while (!fs::exists(log, none) && Clock::now() < until) std::this_thread::sleep_for(200ms);
    if (!is_slurm) std::this_thread::sleep_for(500ms);
    print_logs(watch, true);
    if (watch.record.started && !fs::exists(log, none))
      log::warning(format("{} did not appear within {} s of the job's end", log.string(), limit.count()));
    console_.line(
        format("job {}{} {}", watch.job(), watch.verdict.empty() ? "" : ":", end_in_words(watch, log)));
  }

 private:
  // The log of a job may appear when the job that continues its run has started.
  bool print_logs(const JobWatch& watch, bool at_end) {
    if (logs_.empty() || watch.job() != job_)
      logs_.push_back({cluster::log_of(submission_.scheduler, submission_.name, job_ = watch.job())});
    bool is_new = false;
    for (auto& log : logs_) is_new = log.print_new(console_, at_end) || is_new;
    return is_new;
  }

  // On the terminal's last line.
  static std::string progress_of(const JobWatch& watch) {
    if (watch.phase != JobWatch::running || watch.folder.empty()) return "";
    try {
      const auto status = run_folder::read_status(watch.folder);
      return format("job {}: {}, {} of {} epochs, step {}", watch.job(), watch.folder.filename().string(),
                    status.epoch, status.epochs, status.step);
    } catch (const Error&) {  // not written yet
      return "";
    }
  }

  const Submission& submission_;
  std::string job_, shown_;
  run_folder::Console console_{true};
  std::vector<LogTail> logs_;
};

// A job that stops early is followed by the next one of its chain.
int wait_for_chain(const Submission& submission) {
  int status = kFailed;
  for (size_t i = 0; i < submission.jobs.size(); ++i) {
    if (submission.jobs.size() > 1) log::info(format("chain job {} of {}", i + 1, submission.jobs.size()));
    JobScreen screen(submission);
    SchedulerPoll poll(submission);
    Watches watches{JobWatch(submission.jobs[i].id, submission.jobs[i].record)};
    const auto& watch = watches[0];
    for (auto pause = 1000ms; watches[0].update() != JobWatch::over; std::this_thread::sleep_for(pause)) {
      pause = pause_after(screen.show(watch), pause);
      poll.query(watches);
    }
    screen.finish(watch);
    if (i == 0 || !watch.folder.empty()) status = watch.status;
    if (status == kStoppedEarly && watch.status == kStoppedEarly) continue;
    std::vector<std::string> cancel;
    while (!watch.record.started && ++i < submission.jobs.size())
      cancel.push_back(cluster::cancel_command(submission.scheduler, submission.jobs[i].id));
    if (!cancel.empty())  // PBS holds a job whose predecessor was deleted before it started
      log::warning("the chain's other jobs may wait forever; to cancel them, run: " +
                   base::join(cancel, "; "));
    break;
  }
  return status;
}

std::string counts(const Watches& watches) {
  const auto count = [&](JobWatch::Phase phase) {
    return std::ranges::count(watches, phase, &JobWatch::phase);
  };
  return format("{}: {} queued, {} running, {} finished", base::counted(std::ssize(watches), "task"),
                count(JobWatch::queued), count(JobWatch::running), count(JobWatch::over));
}

void print_table(const Watches& watches) {
  std::vector<fs::path> folders;
  for (const auto& watch : watches)
    if (!watch.folder.empty()) folders.push_back(watch.folder);
  const auto list = report::list_runs(folders);
  for (const auto& [folder, why] : list.passed_over) log::warning(format("skipped: {}: {}", folder, why));
  const auto terminal = launch::terminal_behind(1);
  output::print("\n" + report::run_table(list, terminal ? terminal->width() : 0));
}

int wait_for_sweep(const Submission& submission) {
  Watches watches;
  for (const auto& job : submission.jobs) watches.emplace_back(job.id, job.record);
  SchedulerPoll poll(submission);
  run_folder::Console console(true);
  auto pause = 1000ms;
  std::string shown;
  for (size_t over = 0; over < watches.size(); std::this_thread::sleep_for(pause)) {
    for (size_t i = 0; i < watches.size(); ++i) {
      auto& watch = watches[i];
      if (watch.phase == JobWatch::over || watch.update() != JobWatch::over) continue;
      ++over;
      const auto log = cluster::log_of(submission.scheduler, submission.name, watch.job());
      console.line(format("task {} ({}): {}", submission.jobs[i].id, base::printable(submission.jobs[i].what),
                          end_in_words(watch, log)));
    }
    const auto now = counts(watches);
    pause = std::max<std::chrono::milliseconds>(pause_after(now != shown, pause), watches.size() * 10ms);
    console.progress(shown = now);
    poll.query(watches);
  }
  console.clear();
  print_table(watches);
  const auto status = watches[0].status;
  return std::ranges::count(watches, status, &JobWatch::status) == std::ssize(watches) ? status : kFailed;
}

}  // namespace

int wait_for(const Submission& submission) {
  return submission.sweep ? wait_for_sweep(submission) : wait_for_chain(submission);
}

}  // namespace lockstep::submit
