#include "tools/submit/job_screen.h"

#include <algorithm>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "tools/cluster/scheduler.h"
#include "tools/submit/interrupts.h"

namespace lockstep::submit {
namespace {

using namespace std::chrono_literals;
using cluster::Standing;

constexpr auto kLook = 100ms;
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

}  // namespace

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

void JobScreen::show(const Standing& standing) {
  if (standing.job != job_) follow(standing.job);
  pass_on_logs(false);
  const auto said = sentence(standing);
  if (said != said_) log::info(said_ = said);
  if (standing.phase == Standing::running)
    show_progress(standing);
  else
    console_.progress(said);
}

void JobScreen::end(const Standing& standing) {
  if (standing.job != job_) follow(standing.job);
  wait_for_log(longest_copy(scheduler_, standing));
  pass_on_logs(true);
  console_.line(format("job {}{} {}", standing.job, standing.verdict.empty() ? "" : ":",
                       end_of(standing, logs_.back().path())));
}

// Until it is there and grows no more.
void JobScreen::wait_for_log(std::chrono::seconds longest) {
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

void JobScreen::follow(const std::string& job) {
  job_ = job;
  logs_.emplace_back(cluster::log_of(scheduler_, name_, job));
}

// the one before may come when the next one runs
void JobScreen::pass_on_logs(bool at_end) {
  for (auto& log : logs_) log.pass_on([this](const std::string& line) { console_.line(line); }, at_end);
}

// a log that grows says it better, but for a terminal's last line
void JobScreen::show_progress(const Standing& standing) {
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

}  // namespace lockstep::submit
