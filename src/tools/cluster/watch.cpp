#include "tools/cluster/watch.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"

namespace lockstep::cluster {
namespace {

constexpr size_t kMostAtOnce = 1 << 20;
constexpr size_t kLongestLine = 1 << 16;

}  // namespace

bool LogTail::read_some() try {
  const base::RegularFile file(path_.string(), "the job's log");
  if (file.size() < offset_) {  // begun again by a site that does not append
    offset_ = 0;
    piece_.clear();
  }
  std::array<char, 1 << 14> part;
  for (size_t taken = 0; taken < kMostAtOnce;) {
    const size_t n = file.read_at(offset_, part.data(), part.size());
    if (n == 0) return false;
    piece_.append(part.data(), n);
    offset_ += n;
    taken += n;
  }
  return true;
} catch (const Error&) {  // gone, or not to be read now
  return false;
}

void LogTail::hand_over(const Taker& to) {
  size_t from = 0;
  for (size_t end = 0; (end = piece_.find('\n', from)) != std::string::npos; from = end + 1)
    to(piece_.substr(from, end - from));
  piece_.erase(0, from);
  if (piece_.size() < kLongestLine) return;
  to(piece_);
  piece_.clear();
}

void LogTail::pass_on(const Taker& to, bool at_end) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path_, none)) return;
  for (bool more = true; more;) {
    more = read_some() && at_end;
    hand_over(to);
  }
  if (piece_.empty() || !at_end) return;
  to(piece_);
  piece_.clear();
}

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = 4 << 20;

// the word up to the next blank; the text keeps the rest
std::string next_word(std::string& text) {
  const auto blank = text.find(' ');
  const auto word = text.substr(0, blank);
  text = blank == std::string::npos ? "" : text.substr(blank + 1);
  return word;
}

std::optional<int> parse_status(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

void begin(Recorded& recorded) {
  recorded.restarts += recorded.began ? 1 : 0;
  recorded.began = true;
  recorded.again = false;
  recorded.status.reset();
}

void take(Recorded& recorded, std::string line) {
  const auto fact = next_word(line), job = next_word(line);
  if (recorded.job.empty()) recorded.job = job;
  if (job != recorded.job) return;  // one that was replaced, and is started again
  if (fact == "begin") {
    begin(recorded);
  } else if (fact == "file") {
    recorded.run_file = line;
  } else if (fact == "again") {
    recorded.again = true;
  } else if (fact == "next") {
    recorded.job = line;
    recorded.replaced = recorded.again = true;
  } else if (fact == "end") {
    recorded.status = parse_status(next_word(line));
    if (!line.empty()) recorded.folder = line;
  }
}

// A line that is still being written does not count.
std::string text_of(const fs::path& path) {
  std::error_code none;
  if (!fs::exists(path, none)) return "";
  try {
    return base::read_small_file(path.string(), kMostBytes, "the job's record");
  } catch (const InputError&) {
    return "";  // removed in between
  }
}

}  // namespace

Recorded read_record(const std::string& text) {
  Recorded recorded;
  for (size_t from = 0, end = 0; (end = text.find('\n', from)) != std::string::npos; from = end + 1)
    take(recorded, text.substr(from, end - from));
  return recorded;
}

Recorded read_record_file(const fs::path& path) {
  return read_record(text_of(path));
}

fs::path folder_of(const Recorded& recorded) {
  if (!recorded.folder.empty()) return recorded.folder;
  auto said = recorded.run_file.empty() ? "" : text_of(recorded.run_file);
  return said.substr(0, said.find('\n'));  // a relative one is from the folder of submission, where we are
}

namespace {

using namespace std::chrono_literals;

constexpr auto kEvery = 5s;  // the scheduler is everybody's
constexpr auto kSoon = 1s;   // where its word is all that is waited for
constexpr auto kSilent = 60s;

// By the run's own word; nothing where its folder cannot be read.
std::optional<run_folder::StatusReport> judged(const std::filesystem::path& folder) {
  if (folder.empty()) return std::nullopt;
  try {
    return run_folder::job_status(folder);
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool is_there(const Seen& seen) {
  return seen.state == Seen::queued || seen.state == Seen::running;
}

}  // namespace

void JobWatch::hear(const Seen& seen) {
  if (is_there(seen))
    gone_since_.reset();
  else if (!gone_since_ || seen_->state != seen.state)
    gone_since_ = Clock::now();
  seen_ = seen;
  heard_ = Clock::now();
}

// A run that is on keeps a job alive that its scheduler has lost.
bool JobWatch::is_given_up() {
  if (!gone_since_) return false;
  const bool unknown = seen_->state == Seen::unknown;
  if (Clock::now() - *gone_since_ <= (unknown ? patience_.unknown : patience_.record)) return false;
  const auto verdict = unknown ? judged(now_.folder) : std::nullopt;
  return !verdict || verdict->exit_status != run_folder::kRunning;
}

const Standing& JobWatch::look() {
  if (over()) return now_;
  const auto recorded = read_record_file(record_);
  const auto job = recorded.replaced ? recorded.job : job_;
  const int begins = recorded.restarts + (recorded.began ? 1 : 0);
  if (job != now_.job || begins != begins_) forget_what_was_heard();
  now_.job = job;
  begins_ = begins;
  now_.restarts = recorded.restarts;
  if (const auto folder = folder_of(recorded); !folder.empty()) now_.folder = folder;
  if (has_ended(recorded) || is_given_up()) {
    end(recorded);
  } else if (recorded.status && !(seen_ && seen_->state == Seen::queued)) {
    now_.phase = Standing::ending;
  } else if (seen_ && seen_->state == Seen::unknown) {
    now_.phase = Standing::missing;
  } else if (recorded.began && !recorded.again && !(seen_ && seen_->state == Seen::queued)) {
    now_.phase = Standing::running;
  } else {
    now_.phase = recorded.began ? Standing::again : Standing::queued;
    now_.words = seen_ && seen_->state == Seen::queued ? seen_->words : "";
  }
  return now_;
}

void JobWatch::forget_what_was_heard() {
  seen_.reset();
  gone_since_.reset();
}

// Whatever it ended with, the scheduler may start the same job again (a requeue, a node's failure, qrerun,
// pre-emption): only what it says when it is asked after that end tells.
bool JobWatch::has_ended(const Recorded& recorded) {
  if (!recorded.status) {
    ended_since_.reset();
    return false;
  }
  if (!ended_since_) {
    ended_since_ = Clock::now();
    last_ = judged(now_.folder);  // a chain's next link soon speaks there
    forget_what_was_heard();
  }
  if (seen_ && !is_there(*seen_)) return true;
  return Clock::now() - std::max(*ended_since_, heard_) > patience_.silent;
}

void JobWatch::end(const Recorded& recorded) {
  now_.phase = Standing::over;
  now_.lost = !recorded.status;
  now_.words = now_.lost && seen_ ? seen_->words : "";
  now_.status = recorded.status.value_or(kFailed);
  const auto verdict = ended_since_ ? last_ : judged(now_.folder);
  if (!verdict) return;
  // a script that died before its run went on: the run's word is of the time before
  if (verdict->exit_status == kStoppedEarly && recorded.status.value_or(kStoppedEarly) != kStoppedEarly)
    return;
  now_.status = verdict->exit_status;
  now_.verdict = verdict->text;
}

std::optional<std::string> SchedulerPoll::ask(std::vector<JobWatch>& watches) {
  const bool soon = std::ranges::any_of(watches, &JobWatch::waits_for_word);
  if (Clock::now() - asked_ < (soon ? kSoon : kEvery)) return std::nullopt;
  std::vector<JobWatch*> open;
  for (const bool waits : {true, false}) {  // those that wait for a word first: PBS is asked of few at a time
    for (size_t i = 0; i < watches.size(); ++i) {
      auto& watch = watches[(next_ + i) % watches.size()];
      if (!watch.over() && !watch.standing().job.empty() && watch.waits_for_word() == waits)
        open.push_back(&watch);
    }
  }
  if (open.empty()) return std::nullopt;
  std::vector<std::string> jobs;
  for (const auto* watch : open) jobs.push_back(watch->standing().job);
  const auto look = look_at(scheduler_, jobs, run_);
  const auto& seen = look.seen;
  next_ += std::max<size_t>(1, seen.size());  // one that cannot be asked is not to keep the others waiting
  asked_ = Clock::now();
  for (size_t i = 0; i < open.size(); ++i) {
    if (const auto found = seen.find(jobs[i]); found != seen.end()) open[i]->hear(found->second);
  }
  const bool was_silent = silent_;
  if (!seen.empty()) answered_ = asked_;
  silent_ = asked_ - answered_ > kSilent;
  if (silent_ == was_silent) return std::nullopt;
  if (!silent_) return "the scheduler answers again";
  return format("the scheduler has not answered for {} s; still waiting ({})",
                std::chrono::duration_cast<std::chrono::seconds>(asked_ - answered_).count(), look.trouble);
}

}  // namespace lockstep::cluster
