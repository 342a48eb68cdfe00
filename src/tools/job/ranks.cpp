// One start of the ranks: signals, the launcher, and processes that ran out of memory.
#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "lockstep/base/files/file.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/control_groups.h"
#include "tools/job/job.h"
#include "trainer/run_folder/folder.h"
#include "trainer/run_folder/status.h"

namespace lockstep::job {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kTick = 100ms;
constexpr auto kAfterFolder = 1s;  // from the creation of the run folder to ranks that handle SIGUSR1

// 2^62 and above is no limit.
std::string gigabytes_in(const fs::path& file) {
  const auto number = base::number_in(base::first_line(file));
  if (!number || *number >= (1LL << 62)) return "unknown";
  return format("{:.2f} GiB", static_cast<double>(*number) / (1 << 30));
}

}  // namespace

void say(const std::string& text) {
  output::line("lockstep job: " + text);
}

Signals::Signals() {
  sigset_t set;
  sigemptyset(&set);
  constexpr std::array kHeld = {SIGUSR1, SIGUSR2, SIGTERM, SIGCHLD};
  for (const int signal : kHeld) sigaddset(&set, signal);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  for (const int signal : kHeld) ::signal(signal, SIG_DFL);  // the script may ignore it
  file_ = base::Descriptor(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  others = descendants();
}

std::vector<int> Signals::take() {
  std::vector<int> signals;
  signalfd_siginfo info{};
  while (::read(file_.number(), &info, sizeof info) == sizeof info)
    if (info.ssi_signo != SIGCHLD) signals.push_back(static_cast<int>(info.ssi_signo));
  return signals;
}

std::vector<pid_t> descendants(const std::vector<pid_t>& others, const std::string& name,
                               const std::vector<pid_t>& known) {
  std::map<pid_t, std::vector<pid_t>> children;
  std::map<pid_t, std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator("/proc", none)) {
    const auto pid = base::number_in(entry.path().filename().string());
    if (!pid) continue;
    const auto stat = base::first_line(entry.path() / "stat");
    const auto open = stat.find('('), close = stat.rfind(')');
    if (open == std::string::npos || close == std::string::npos || close + 4 > stat.size()) continue;
    if (stat[close + 2] == 'Z' || stat[close + 2] == 'X') continue;
    children[static_cast<pid_t>(base::number_in(stat.substr(close + 4)).value_or(0))].push_back(
        static_cast<pid_t>(*pid));
    names[static_cast<pid_t>(*pid)] = stat.substr(open + 1, close - open - 1);
  }
  std::vector<pid_t> found, open = {::getpid()};
  while (!open.empty()) {
    const auto parent = open.back();
    open.pop_back();
    for (const auto child : children[parent]) {
      if (std::ranges::count(others, child) > 0) continue;
      open.push_back(child);
      if (name.empty() || names[child] == name.substr(0, 15) || std::ranges::count(known, child) > 0)
        found.push_back(child);
    }
  }
  return found;
}

int64_t seconds_of_session() {
  const auto ticks = run_folder::start_of(::getsid(0));
  const auto now = base::number_in(base::first_line("/proc/uptime")).value_or(0);
  return ticks == 0 ? 0 : now - ticks / ::sysconf(_SC_CLK_TCK);
}

int status_of_run(const std::string& folder, int otherwise) {
  try {
    return folder.empty() ? otherwise : run_folder::job_status(folder).exit_status;
  } catch (const Error&) {
    return otherwise;
  }
}

void Signals::note(int signal) {
  if (stop != SIGTERM) stop = signal;
}

void end_leftovers(const Signals& signals) {
  const auto until = Clock::now() + 5s;
  auto left = descendants(signals.others);
  if (!left.empty()) say(format("killing the processes that the launcher left behind ({})", left.size()));
  for (; !left.empty() && Clock::now() < until; left = descendants(signals.others)) {
    for (const auto pid : left) ::kill(pid, SIGKILL);
    std::this_thread::sleep_for(kTick);
  }
}

// A job without a group of its own shares the node's count of kills.
MemoryKills memory_kills(const std::string& job_mark, const std::string& root) {
  MemoryKills kills;
  bool has_group = false;
  for (const auto& [folder, version_1] : launch::control_groups("memory", root)) {
    if (!contains(folder.string() + "/", job_mark + "/")) continue;
    const auto text = base::field(folder / (version_1 ? "memory.oom_control" : "memory.events"), "oom_kill ");
    if (text.empty()) continue;
    has_group = true;
    const auto count = base::number_in(text).value_or(0);
    if (count > 0)
      kills = {count,
               format("limit {}, peak {}",
                      gigabytes_in(folder / (version_1 ? "memory.limit_in_bytes" : "memory.max")),
                      gigabytes_in(folder / (version_1 ? "memory.max_usage_in_bytes" : "memory.peak"))),
               false};
  }
  if (!has_group)
    kills = {base::number_in(base::field(root + "/proc/vmstat", "oom_kill ")).value_or(0),
             "the kernel killed a process on this node; the process may belong to another job", true};
  return kills;
}

// ---- one start ----

namespace {

class RanksRun {
 public:
  RanksRun(OwnJob& job, Signals& signals, RanksPlan plan)
      : job_(job), signals_(signals), plan_(std::move(plan)) {}

  RanksEnd run() {
    const auto kills_before = memory_kills(memory_mark()).count;
    for (const int signal : signals_.take()) take(signal);
    start();
    while (!has_ended()) {
      deliver();
      wait(kTick);
      for (const int signal : signals_.take()) take(signal);
      check_launcher();
    }
    // a process that the launcher left may keep the pipe open
    const auto until = Clock::now() + (ended_by_ != 0 ? 1s : 5s);
    while (errors_ && Clock::now() < until) wait(kTick);
    if (ended_by_ != 0) status_ = 128 + ended_by_;  // mpirun handles the signal, and has a status of its own
    const auto kills = memory_kills(memory_mark());
    const auto killed = kills.count - kills_before;
    if (killed <= 0 || (kills.is_guess && !memory_line_.empty())) return {status_, memory_line_};
    if (kills.is_guess) return {status_, format("possibly ({})", kills.limits), true};
    return {status_,
            format("{} process{} killed on this node ({})", killed, killed == 1 ? "" : "es", kills.limits)};
  }

 private:
  bool is_srun() const { return plan_.launcher[0] == "srun"; }
  std::string memory_mark() const { return (job_.is_slurm() ? "/job_" : "/") + job_.id(); }

  void start() {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
      throw Error("cannot create a pipe: " + std::string(std::strerror(errno)));
    errors_ = base::Descriptor(ends[0]);
    const base::Descriptor write(ends[1]);
    ::fcntl(write.number(), F_SETFL, ::fcntl(write.number(), F_GETFL) & ~O_NONBLOCK);
    base::Program program{
        .argv = plan_.launcher, .output = STDOUT_FILENO, .errors = write.number(), .without = {"*"}};
    program.argv.insert(program.argv.end(), plan_.words.begin(), plan_.words.end());
    for (const auto& [name, setting] : plan_.environment) program.settings.push_back(name + "=" + setting);
    if (const int code = base::start_program(program, child_); code != 0)
      throw InputError(format("{} cannot be started: {}", program.argv[0], std::strerror(code)),
                       program.argv[0]);
  }

  // For a signal, or what the launcher writes to its standard error.
  void wait(std::chrono::milliseconds limit) {
    std::array<pollfd, 2> ready{pollfd{signals_.descriptor(), POLLIN, 0},
                                pollfd{errors_.number(), POLLIN, 0}};
    ::poll(ready.data(), ready.size(), static_cast<int>(limit.count()));
    std::array<char, 65536> part;
    while (errors_) {
      const auto got = ::read(errors_.number(), part.data(), part.size());
      if (got > 0) pass_on({part.data(), static_cast<size_t>(got)});
      if (got == 0) errors_.close();
      if (got <= 0 && !(got < 0 && errno == EINTR)) return;
    }
  }

  // Slurm reports a process that ran out of memory on another node only there.
  void pass_on(std::string_view bytes) {
    base::write_all(STDERR_FILENO, bytes);
    last_line_ += bytes;
    for (size_t end; (end = last_line_.find_first_of("\r\n")) != std::string::npos;
         last_line_.erase(0, end + 1)) {
      const auto line = last_line_.substr(0, end);
      for (const char* words : {"oom_kill event", "oom-kill event", "exceeded memory limit"})
        if (contains(line, words)) memory_line_ = base::printable(base::trimmed(line), 300);
    }
    constexpr size_t kMostBytes = 4096;  // of a line that does not end
    last_line_.erase(0, std::max(last_line_.size(), kMostBytes) - kMostBytes);
  }

  bool has_ended() {
    int status = 0;
    // the others are orphans of the launcher, which this process adopts
    for (pid_t done; (done = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (done != child_) continue;
      status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      return true;
    }
    return false;
  }

  void take(int signal) {
    if (signal == SIGUSR1 && std::exchange(signals_.ignores_warning, false))
      return say("ignoring the first SIGUSR1, which Slurm sends too early in a job of at most 3 minutes");
    signals_.note(signal);
    next_look_ = Clock::now();
    if (signal == SIGTERM) say("SIGTERM: the job was canceled or preempted, or reached its time limit");
    // PBS signals every process of a job; a second SIGTERM would make mpirun leave without its ranks
    const bool ranks_have_it = !job_.is_slurm() && child_ > 0;
    say(format("got SIG{}, {}", ::sigabbrev_np(signal),
               ranks_have_it ? "which the ranks received as well" : "forwarding it to the ranks"));
    if (!ranks_have_it) pending_ = signal;
  }

  // SIGUSR1 kills a launcher or rank that is still starting, so it waits for the run folder. Slurm's ranks
  // get it instead of SIGTERM, too: srun kills its ranks after one SIGTERM, and mpirun leaves after two.
  void deliver() {
    if (pending_ == 0) return;
    const bool trains = !plan_.run_file.empty();
    const int signal = job_.is_slurm() && trains && pending_ == SIGTERM ? SIGUSR1 : pending_;
    if (signal != SIGTERM && trains) {
      if (!folder_since_ && !folder().empty()) folder_since_ = Clock::now();
      if (!folder_since_ || Clock::now() < *folder_since_ + kAfterFolder) return;
    }
    pending_ = 0;
    ::kill(child_, signal);
    if (job_.is_slurm() && !is_srun())
      for (const auto rank : local_ranks()) ::kill(rank, signal);
  }

  // Also those that have changed their name: a script that executes another program.
  const std::vector<pid_t>& local_ranks() {
    return ranks_ = descendants(signals_.others, fs::path(plan_.words[0]).filename().string(), ranks_);
  }

  // The files are on the file system of all users' jobs, so each look counts.
  const std::string& folder() {
    if (folder_.empty()) folder_ = base::first_line(plan_.run_file);
    return folder_;
  }

  // A launcher may wait minutes for a lost node, or after a SIGTERM, although its ranks have ended.
  void check_launcher() {
    const auto now = Clock::now();
    if (plan_.run_file.empty() || ended_by_ == SIGKILL || now < next_look_) return;
    const bool is_stopping = signals_.stop == SIGTERM && !is_srun();
    const bool is_starting = folder().empty() && !is_srun();
    if (!errors_since_ && plan_.survives_losses && !base::first_line(plan_.errors_file).empty())
      errors_since_ = now;
    const bool is_urgent = is_stopping || errors_since_ || (is_starting && !had_ranks_);
    next_look_ = now + (is_urgent ? 200ms : is_starting || plan_.survives_losses ? 1s : 5s);
    const int status = status_of_run(folder(), run_folder::kRunning);
    const bool is_over = status != run_folder::kRunning || (errors_since_ && !is_srun());
    const bool has_ranks = (is_over || is_starting) && !local_ranks().empty();
    had_ranks_ = had_ranks_ || has_ranks;
    // ranks that die before they create the run folder may leave neither a status nor an error
    if (has_ranks || !(is_over || (is_starting && had_ranks_)))
      idle_since_.reset();
    else if (!idle_since_)
      idle_since_ = now;
    // srun's ranks are not below this process, and may still write their last errors
    const bool is_lost = plan_.survives_losses && (errors_since_ || status == kFailed);
    const auto limit = is_stopping ? 0ms : !is_lost ? plan_.patience : is_srun() ? 2s : 500ms;
    const bool is_idle = idle_since_ && now - *idle_since_ >= limit;
    if (!is_idle && !(errors_since_ && now - *errors_since_ > 5s)) return;
    ended_by_ = ended_by_ == 0 ? SIGTERM : SIGKILL;  // it removes its files after the first
    next_look_ = now + 2s;
    say(format("the ranks have ended but their launcher has not: sending SIG{} to it",
               ::sigabbrev_np(ended_by_)));
    ::kill(child_, ended_by_);
    if (ended_by_ == SIGKILL)
      for (const auto process : descendants(signals_.others)) ::kill(process, SIGKILL);
  }

  OwnJob& job_;
  Signals& signals_;
  RanksPlan plan_;
  std::vector<pid_t> ranks_;  // on this node, as seen last
  std::string last_line_, memory_line_, folder_;
  base::Descriptor errors_;
  pid_t child_ = -1;
  int status_ = 0, pending_ = 0;
  Clock::time_point next_look_ = Clock::now();
  std::optional<Clock::time_point> errors_since_, idle_since_, folder_since_;
  int ended_by_ = 0;  // the signal that this process sent to the launcher
  bool had_ranks_ = false;
};

}  // namespace

RanksEnd run_ranks(OwnJob& job, Signals& signals, RanksPlan plan) {
  return RanksRun(job, signals, std::move(plan)).run();
}

}  // namespace lockstep::job
