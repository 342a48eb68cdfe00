#include "lockstep/launch/process/spawn_ranks.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/program.h"
#include "lockstep/launch/identify.h"
#include "lockstep/launch/process/stop_signal.h"
#include "lockstep/launch/variables.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kLastWords = 10s;  // for the ranks beside one that failed
constexpr const char* kCarrier = "LOCKSTEP_CARRIER";
constexpr const char* kCarriedCount = "LOCKSTEP_BLOCK";
constexpr int kPassedOn[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};

// Kept from this process until it asks for them; what it starts has none blocked.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGCHLD);
    for (const int signal : kPassedOn) sigaddset(&set_, signal);
    ::pthread_sigmask(SIG_BLOCK, &set_, &former_);
  }
  ~HeldSignals() { ::pthread_sigmask(SIG_SETMASK, &former_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  /// The next one; 0 after `patience`.
  int next(std::chrono::milliseconds patience, siginfo_t& facts) const {
    const timespec time{patience.count() / 1000, patience.count() % 1000 * 1'000'000};
    const int signal = ::sigtimedwait(&set_, &facts, &time);
    return signal > 0 ? signal : 0;
  }

 private:
  sigset_t set_{}, former_{};
};

// As this process was started, whatever became of the program's file since.
std::vector<std::string> own_words() {
  constexpr const char* kItself = "/proc/self/exe";
  const auto text = base::read_text("/proc/self/cmdline");
  std::vector<std::string> words;
  for (size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\0', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  const auto path = std::filesystem::read_symlink(kItself);
  if (!words.empty()) words[0] = std::filesystem::exists(path) ? path.string() : kItself;
  return words;
}

// The ranks that are under way, by process.
class Carried {
 public:
  explicit Carried(std::string host) : host_(std::move(host)) {}
  ~Carried() { end_all(); }

  void start(int rank, const base::Program& program) {
    pid_t child = 0;
    const int code = base::start_program(program, child);
    if (code != 0)
      throw Error(format("rank {} cannot be started: {}", rank, std::strerror(code)), "train.as_world",
                  "is the limit of processes reached (ulimit -u)?");
    ranks_[child] = rank;
  }

  bool empty() const { return ranks_.empty(); }

  void pass_on(int signal) {
    expect(signal);
    for (const auto& [child, rank] : ranks_) ::kill(child, signal);
  }
  /// Who ends by it now has obeyed.
  void expect(int signal) { expected_.insert(signal); }

  // Those that have ended.
  void collect() {
    int status = 0;
    for (pid_t child = 0; (child = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto found = ranks_.find(child);
      if (found == ranks_.end()) continue;
      const int rank = found->second;
      ranks_.erase(found);
      note(rank, child, status);
    }
  }

  /// Where one has failed: until when the rest may take to leave.
  std::optional<Clock::time_point> end_by() const { return end_by_; }

  void end_all() {
    for (const auto& [child, rank] : ranks_) {
      log::warning(format("sending SIGKILL to rank {} (process {} on {})", rank, child, host_));
      ::kill(child, SIGKILL);
    }
    for (const auto& [child, rank] : ranks_) ::waitpid(child, nullptr, 0);
    ranks_.clear();
  }

  int status() const { return failed_.value_or(stopped_ ? kStoppedEarly : kDone); }

 private:
  void note(int rank, pid_t child, int status) {
    if (WIFSIGNALED(status)) {
      const int signal = WTERMSIG(status);
      if (expected_.contains(signal)) return fail(128 + signal);  // as a shell says it
      log::error(format("rank {} (process {} on {}) was ended by {}{}", rank, child, host_,
                        signal_name(signal),
                        signal == SIGKILL ? ": by somebody, or for want of memory (dmesg tells)" : ""));
      return fail(kFailed);
    }
    const int code = WEXITSTATUS(status);
    if (code == kStoppedEarly)
      stopped_ = true;
    else if (code != kDone)
      fail(code);
  }

  void fail(int status) {
    if (failed_) return;
    failed_ = status;
    end_by_ = Clock::now() + kLastWords;
  }

  std::string host_;
  std::map<pid_t, int> ranks_;
  std::set<int> expected_;
  std::optional<int> failed_;
  bool stopped_ = false;
  std::optional<Clock::time_point> end_by_;
};

// The terminal's own Ctrl-C, Ctrl-\ and Ctrl-Z reach every process that it started; its end reaches one.
bool came_to_all(int signal, const siginfo_t& facts) {
  return facts.si_code == SI_KERNEL && (signal == SIGINT || signal == SIGQUIT || signal == SIGTSTP);
}

// As nohup has it; what is blocked arrives all the same.
bool is_ignored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

void pass_on(Carried& carried, int signal, const siginfo_t& facts) {
  if (signal == SIGHUP && is_ignored(signal)) return;
  if (came_to_all(signal, facts))
    carried.expect(signal);
  else
    carried.pass_on(signal);
  if (signal == SIGTSTP) ::raise(SIGSTOP);
}

void wait_for_all(Carried& carried, const HeldSignals& signals, const std::string& host) {
  for (carried.collect(); !carried.empty(); carried.collect()) {
    siginfo_t facts{};
    const int signal = signals.next(200ms, facts);
    if (signal != 0 && signal != SIGCHLD) pass_on(carried, signal, facts);
    if (carried.end_by() && Clock::now() > *carried.end_by()) {
      log::error(
          format("ranks on {} did not leave within {} s of another's failure", host, kLastWords.count()));
      carried.end_all();
    }
  }
}

}  // namespace

RankBlock block_of(int index, int processes, int ranks) {
  const int even = ranks / processes, more = ranks % processes;
  return {index * even + std::min(index, more), even + (index < more ? 1 : 0)};
}

std::string blocks_text(int processes, int ranks) {
  std::string text;
  for (int i = 0; i < processes; ++i)
    text += format("{}{}", i == 0 ? "" : "+", block_of(i, processes, ranks).count);
  return text;
}

std::vector<std::string> settings_of_spawned(const Job& job, int rank, int world, const RankBlock& block) {
  std::vector<std::string> settings = {
      format("LOCKSTEP_RANK={}", rank), format("LOCKSTEP_WORLD_SIZE={}", world),
      format("{}={}", kCarriedCount, block.count), format("{}={}", kCarrier, ::getpid())};
  if (job.world == 1 || surely_one_node(job)) {
    settings.insert(settings.end(), {"LOCKSTEP_NODES=1", "LOCKSTEP_NODE_RANK=0"});
    settings.push_back(format("LOCKSTEP_LOCAL_RANK={}", rank));
    settings.push_back(format("LOCKSTEP_LOCAL_WORLD_SIZE={}", world));
  } else if (was_told(job, "nodes") && was_told(job, "node_rank")) {
    settings.push_back(
        format("LOCKSTEP_NODE_RANK={}", job.node_rank));  // the rest is found when the ranks meet
  }
  return settings;
}

int spawn_ranks(const Job& job, int world, const std::vector<std::string>& settings) {
  const auto block = block_of(job.rank, job.world, world);
  const HeldSignals signals;
  log::set_rank(0, 1);  // each carrier speaks of ranks of its own
  Carried carried(job.host);
  for (int rank = block.first; rank < block.first + block.count; ++rank) {
    auto own = settings_of_spawned(job, rank, world, block);
    own.insert(own.end(), settings.begin(), settings.end());
    carried.start(rank, {.argv = own_words(),
                         .settings = std::move(own),
                         .without = {"LOCKSTEP_RANK", "LOCKSTEP_WORLD_SIZE", "LOCKSTEP_NODE*",
                                     "LOCKSTEP_LOCAL_*", "LOCKSTEP_MEETING", kCarrier, kCarriedCount},
                         .blocked = {SIGUSR1, SIGUSR2}});  // until it listens
  }
  if (const int early = StopSignals::received(); early != 0)
    carried.pass_on(early);  // while we read what to do
  wait_for_all(carried, signals, job.host);
  return carried.status();
}

void end_with_spawner() {
  const char* value = std::getenv(kCarrier);
  if (!value) return;
  const std::string carrier = value;
  ::unsetenv(kCarrier);                       // what this process starts is no rank of it
  if (!std::getenv("LOCKSTEP_RANK")) return;  // somebody left the variable behind
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (std::to_string(::getppid()) == carrier) return;
  std::fprintf(stderr,
               "error: process %s, which carried this rank, is gone\n"
               "  to do: where nothing carried it, unset LOCKSTEP_RANK, LOCKSTEP_WORLD_SIZE and %s\n",
               carrier.c_str(), kCarrier);
  ::_exit(kFailed);
}

int spawned_together() {
  const auto environment = current_environment();
  return is_set(environment, "LOCKSTEP_RANK") ? number_of(environment, kCarriedCount).value_or(1) : 0;
}

}  // namespace lockstep::launch
