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
  const bool is_gone = state.kind == JobState::gone || state.kind == JobState::unknown;
  if (!is_gone || !state_ || state_->kind != state.kind) since_ = Clock::now();
  state_ = state;
}

JobWatch::Phase JobWatch::update() {
  if (phase_ == over) return phase_;
  const auto text = text_of(file_);
  const bool is_new = text != text_;
  if (is_new) {  // the scheduler may start a job again whatever its script ended with: only later answers
                 // count
    text_ = text;
    record_ = parse_record(text);
    state_.reset();
    since_ = Clock::now();
  }
  if (const auto folder = folder_of(record_); !folder.empty()) folder_ = folder;
  if (is_new && record_.status) report_ = report_on(folder_);  // before a chain's next job changes it
  if (is_over()) {
    end();
  } else {
    const bool waits = state_ && state_->kind == JobState::queued;
    phase_ = waits || !record_.started ? queued : running;
  }
  return phase_;
}

bool JobWatch::is_over() const {
  const auto kind = state_ ? state_->kind : JobState::running;
  const bool is_unknown = kind == JobState::unknown, is_gone = is_unknown || kind == JobState::gone;
  const auto waited = Clock::now() - since_;
  if (record_.status) return is_gone || (kind != JobState::queued && waited > limits_.silent);
  if (!is_gone || waited <= (is_unknown ? limits_.unknown : limits_.over)) return false;
  // a run that is running keeps a job that the scheduler has lost
  const auto report = is_unknown ? report_on(folder_) : std::nullopt;
  return !report || report->exit_status != run_folder::kRunning;
}

void JobWatch::end() {
  phase_ = over;
  status_ = record_.status.value_or(kFailed);
  const auto report = record_.status ? report_ : report_on(folder_);
  // a script that failed before it continued the run leaves the report of the start before
  if (!report ||
      (report->exit_status == kStoppedEarly && record_.status.value_or(kStoppedEarly) != kStoppedEarly))
    return;
  status_ = report->exit_status;
  verdict_ = report->text;
}

}  // namespace lockstep::cluster
