#include "lockstep/launch/process/spawn_ranks.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/program.h"
#include "lockstep/launch/identify.h"
#include "lockstep/launch/process/stop_signal.h"
#include "lockstep/launch/process/terminal.h"
#include "lockstep/launch/variables.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kLastWords = 10s;  // for the other ranks to exit after one has failed
constexpr const char* kSpawner = "LOCKSTEP_CARRIER";
constexpr const char* kBlock = "LOCKSTEP_BLOCK";
constexpr int kForwarded[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};

// Blocked signals that this process reads one by one; its children start with none blocked.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGCHLD);
    for (const int signal : kForwarded) sigaddset(&set_, signal);
    ::pthread_sigmask(SIG_BLOCK, &set_, &former_);
  }
  ~HeldSignals() { ::pthread_sigmask(SIG_SETMASK, &former_, nullptr); }
  HeldSignals(HeldSignals&&) = delete;

  /// The next one; 0 after `patience`.
  int next(std::chrono::milliseconds patience, siginfo_t& facts) const {
    const timespec time{patience.count() / 1000, patience.count() % 1000 * 1'000'000};
    return std::max(::sigtimedwait(&set_, &facts, &time), 0);
  }

 private:
  sigset_t set_{}, former_{};
};

// This process's own command line; the program's file may have been replaced since.
std::vector<std::string> own_command() {
  constexpr const char* kItself = "/proc/self/exe";
  auto words = command_line_of("self");
  const auto path = std::filesystem::read_symlink(kItself);
  if (!words.empty()) words[0] = std::filesystem::exists(path) ? path.string() : kItself;
  return words;
}

// The running ranks, by process.
class Children {
 public:
  explicit Children(std::string host) : host_(std::move(host)) {}
  ~Children() { kill_all(); }

  void start(int rank, const base::Program& program) {
    pid_t child = 0;
    const int code = base::start_program(program, child);
    if (code != 0)
      throw Error(format("rank {} cannot be started: {}", rank, std::strerror(code)), host_,
                  "check the process limit (ulimit -u)");
    ranks_[child] = rank;
  }

  bool empty() const { return ranks_.empty(); }

  /// `sent` is false if the ranks have it already.
  void forward(int signal, bool sent = true) {
    forwarded_.insert(signal);
    if (!sent) return;
    for (const auto& [child, rank] : ranks_) ::kill(child, signal);
  }

  /// Notes the ranks that have exited.
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

  /// If one has failed: when the others are killed.
  const std::optional<base::Deadline>& kill_at() const { return kill_at_; }

  void kill_all() {
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
      if (forwarded_.contains(signal)) return fail(128 + signal);  // a shell's exit status
      log::error(format("rank {} (process {} on {}) was killed by {}{}", rank, child, host_,
                        signal_name(signal),
                        signal == SIGKILL ? " (by a user or by the out-of-memory killer; see dmesg)" : ""));
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
    kill_at_.emplace(kLastWords);
  }

  std::string host_;
  std::map<pid_t, int> ranks_;
  std::set<int> forwarded_;
  std::optional<int> failed_;
  bool stopped_ = false;
  std::optional<base::Deadline> kill_at_;
};

// The terminal sends Ctrl-C, Ctrl-\\ and Ctrl-Z to every process that it started, so to the ranks, too.
bool was_sent_to_all(int signal, const siginfo_t& facts) {
  return facts.si_code == SI_KERNEL && (signal == SIGINT || signal == SIGQUIT || signal == SIGTSTP);
}

void forward(Children& ranks, int signal, const siginfo_t& facts) {
  ranks.forward(signal, !was_sent_to_all(signal, facts));
  if (signal == SIGTSTP) ::raise(SIGSTOP);
}

void wait_for_all(Children& ranks, const HeldSignals& signals, const std::string& host) {
  for (ranks.collect(); !ranks.empty(); ranks.collect()) {
    siginfo_t facts{};
    const int signal = signals.next(200ms, facts);
    if (signal != 0 && signal != SIGCHLD) forward(ranks, signal, facts);
    if (ranks.kill_at() && ranks.kill_at()->passed()) {
      log::error(
          format("ranks on {} did not exit within {} s after another rank failed", host, kLastWords.count()));
      ranks.kill_all();
    }
  }
}

// A mistyped number must not take the whole machine's memory: an idle rank needs 64 MB.
void check_memory(int ranks, const std::string& host) {
  const auto most = ::sysconf(_SC_PHYS_PAGES) / 1024 * ::sysconf(_SC_PAGESIZE) / (64 << 10);
  if (ranks > most)
    throw InputError(format("{} ranks do not fit into the memory of this machine", ranks), host,
                     format("start at most {} ranks here", most));
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

std::vector<std::string> spawn_settings(const Job& job, int rank, int world, const RankBlock& block) {
  std::vector<std::string> settings = {
      format("LOCKSTEP_RANK={}", rank), format("LOCKSTEP_WORLD_SIZE={}", world),
      format("{}={}", kBlock, block.count), format("{}={}", kSpawner, ::getpid())};
  if (job.world == 1 || is_known_single_node(job)) {
    settings.insert(settings.end(), {"LOCKSTEP_NODES=1", "LOCKSTEP_NODE_RANK=0"});
    settings.push_back(format("LOCKSTEP_LOCAL_RANK={}", rank));
    settings.push_back(format("LOCKSTEP_LOCAL_WORLD_SIZE={}", world));
  } else if (is_given(job, "nodes") && is_given(job, "node_rank")) {
    settings.push_back(
        format("LOCKSTEP_NODE_RANK={}", job.node_rank));  // the rest is found when the ranks meet
  }
  return settings;
}

int spawn_ranks(const Job& job, int world, const std::vector<std::string>& settings) {
  const auto block = block_of(job.rank, job.world, world);
  check_memory(block.count, job.host);
  const HeldSignals signals;
  log::set_rank(0, 1);  // each spawning process logs about its own ranks
  Children ranks(job.host);
  for (int rank = block.first; rank < block.first + block.count; ++rank) {
    auto own = spawn_settings(job, rank, world, block);
    own.insert(own.end(), settings.begin(), settings.end());
    ranks.start(rank, {.argv = own_command(),
                       .settings = std::move(own),
                       .without = {"LOCKSTEP_RANK", "LOCKSTEP_WORLD_SIZE", "LOCKSTEP_NODE*",
                                   "LOCKSTEP_LOCAL_*", "LOCKSTEP_RENDEZVOUS", kSpawner, kBlock},
                       .blocked = {SIGUSR1, SIGUSR2}});  // until it handles them
  }
  if (const int early = StopSignals::received(); early != 0)
    ranks.forward(early);  // it arrived before the ranks were started
  wait_for_all(ranks, signals, job.host);
  return ranks.status();
}

void end_with_spawner() {
  const char* value = std::getenv(kSpawner);
  if (!value) return;
  const std::string spawner = value;
  ::unsetenv(kSpawner);                       // children of this process are not ranks
  if (!std::getenv("LOCKSTEP_RANK")) return;  // a variable that was left behind
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (std::to_string(::getppid()) == spawner) return;
  std::fprintf(stderr,
               "error: process %s, which started this rank, has exited\n"
               "  hint: if you started this rank, unset LOCKSTEP_RANK, LOCKSTEP_WORLD_SIZE and %s\n",
               spawner.c_str(), kSpawner);
  ::_exit(kFailed);
}

int spawned_rank_count() {
  const auto environment = current_environment();
  return is_set(environment, "LOCKSTEP_RANK") ? number_of(environment, kBlock).value_or(1) : 0;
}

}  // namespace lockstep::launch
