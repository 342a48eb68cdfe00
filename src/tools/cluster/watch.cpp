#include "tools/cluster/watch.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"

namespace lockstep::cluster {
namespace {

namespace fs = std::filesystem;

// the word up to the next blank; the text keeps the rest
std::string next_word(std::string& text) {
  const auto blank = text.find(' ');
  const auto word = text.substr(0, blank);
  text = blank == std::string::npos ? "" : text.substr(blank + 1);
  return word;
}

void add_line(JobRecord& record, std::string line) {
  const auto event = next_word(line), job = next_word(line);
  if (record.job.empty()) record.job = job;
  if (job != record.job) return;  // a job that was replaced, and is started again
  if (event == "begin") {
    record.restarts += record.started ? 1 : 0;
    record.started = true;
    record.status.reset();
  } else if (event == "file") {
    record.run_file = line;
  } else if (event == "next") {
    record.job = line;
    record.replaced = true;
  } else if (event == "end") {
    if (const auto status = base::number_in(next_word(line))) record.status = static_cast<int>(*status);
    if (!line.empty()) record.folder = line;
  }
}

// Empty where the file does not exist yet.
std::string text_of(const fs::path& path) {
  constexpr size_t kMostBytes = 4 << 20;
  try {
    return base::read_small_file(path.string(), kMostBytes, "the job's record");
  } catch (const InputError&) {
    return "";
  }
}

// A relative path starts at the folder of submission, which is the working directory.
fs::path folder_of(const JobRecord& record) {
  if (!record.folder.empty()) return record.folder;
  const auto text = record.run_file.empty() ? "" : text_of(record.run_file);
  return text.substr(0, text.find('\n'));
}

}  // namespace

std::optional<run_folder::StatusReport> report_on(const fs::path& folder) {
  if (folder.empty()) return std::nullopt;
  try {
    return run_folder::job_status(folder);
  } catch (const Error&) {
    return std::nullopt;
  }
}

JobRecord parse_record(const std::string& text) {
  JobRecord record;  // a line that is still being written does not count
  for (size_t from = 0, end = 0; (end = text.find('\n', from)) != std::string::npos; from = end + 1)
    add_line(record, text.substr(from, end - from));
  return record;
}

void JobWatch::set_state(const JobState& state) {
  if (state.kind != JobState::gone && state.kind != JobState::unknown)
    gone_since_.reset();
  else if (!gone_since_ || state_->kind != state.kind)
    gone_since_ = Clock::now();
  state_ = state;
  heard_ = Clock::now();
}

JobWatch::Phase JobWatch::update() {
  if (phase_ == over) return phase_;
  const auto record = parse_record(text_of(record_));
  const auto job = record.replaced ? record.job : job_;
  const int starts = record.restarts + (record.started ? 1 : 0);
  if (job != current_ || starts != starts_) forget_state();
  current_ = job;
  starts_ = starts;
  restarts_ = record.restarts;
  if (const auto folder = folder_of(record); !folder.empty()) folder_ = folder;
  // The scheduler may start a job again whatever its script ended with, so only a later answer counts.
  if (record.status && !script_has_ended_) {
    heard_ = Clock::now();
    report_ = report_on(folder_);  // before the next job of a chain changes it
    forget_state();
  }
  script_has_ended_ = record.status.has_value();
  if (is_over()) {
    end(record.status);
  } else {
    const bool waits = state_ && state_->kind == JobState::queued;
    phase_ = waits || !record.started ? queued : running;
  }
  return phase_;
}

bool JobWatch::is_over() const {
  const bool is_queued = state_ && state_->kind == JobState::queued;
  if (script_has_ended_) return gone_since_ || (!is_queued && Clock::now() - heard_ > limit_if_silent_);
  if (!gone_since_) return false;
  const bool is_unknown = state_->kind == JobState::unknown;
  if (Clock::now() - *gone_since_ <= (is_unknown ? limit_if_unknown_ : limit_if_over_)) return false;
  // a run that is running keeps a job that the scheduler has lost
  const auto report = is_unknown ? report_on(folder_) : std::nullopt;
  return !report || report->exit_status != run_folder::kRunning;
}

void JobWatch::end(const std::optional<int>& script_status) {
  phase_ = over;
  is_lost_ = !script_status;
  status_ = script_status.value_or(kFailed);
  const auto report = script_has_ended_ ? report_ : report_on(folder_);
  // a script that failed before it continued the run leaves the report of the start before
  if (!report ||
      (report->exit_status == kStoppedEarly && script_status.value_or(kStoppedEarly) != kStoppedEarly))
    return;
  status_ = report->exit_status;
  verdict_ = report->text;
}

}  // namespace lockstep::cluster
