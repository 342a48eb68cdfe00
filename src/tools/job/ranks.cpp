#include "tools/job/ranks.h"

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
#include <fstream>
#include <future>
#include <map>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "trainer/run_folder/status.h"

namespace lockstep::job {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kLook = 100ms;
constexpr auto kAfterFolder = 1s;    // from a run's folder to ranks that survive a SIGUSR1
constexpr auto kLastWords = 5s;      // ranks that know of a lost rank leave within this time
constexpr auto kBetweenStays = 10s;  // two looks in a row that find nothing left end a launcher
constexpr auto kDrain = 5s, kDrainAfterKill = 1s;

bool is_dashes(const std::string& line) {
  return line.size() >= 70 && line.find_first_not_of('-') == std::string::npos;
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

const char* name_of_signal(int signal) {
  return signal == SIGUSR1 ? "SIGUSR1" : signal == SIGUSR2 ? "SIGUSR2" : "SIGTERM";
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
  for (const int signal : kHeld) ::signal(signal, SIG_DFL);  // one that a script ignores would not come
  file_ = base::Descriptor(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
}

void Signals::release() {
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

std::vector<int> Signals::take() {
  std::vector<int> signals;
  signalfd_siginfo info{};
  while (::read(file_.number(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo != SIGCHLD) signals.push_back(static_cast<int>(info.ssi_signo));
  }
  return signals;
}

std::string BannerFilter::add(const std::string& bytes) {
  rest_ += bytes;
  std::string shown;
  for (size_t end; (end = rest_.find('\n')) != std::string::npos; rest_.erase(0, end + 1))
    shown += line(rest_.substr(0, end));
  return shown;
}

std::string BannerFilter::line(const std::string& text) {
  if (contains(text, "oom_kill event") || contains(text, "oom-kill event")) memory_kill_ = text;
  const auto run = text.find("run: Forwarding signal ");
  if (run < 10 && text.ends_with(" to job")) return "";
  if (text.starts_with("[") &&
      ((contains(text, "sent help message") && contains(text, "mpi-abort")) ||
       (contains(text, "Set MCA parameter") && contains(text, "_base_help_aggregate"))))
    return "";
  const bool is_edge = is_dashes(text);
  if (block_.empty() && !is_edge) return text + "\n";
  block_.push_back(text);
  constexpr size_t kLongestBanner = 17;
  if (block_.size() < 2 || (!is_edge && block_.size() < kLongestBanner)) return "";
  const bool is_banner = is_edge && std::ranges::any_of(block_, [](const std::string& one) {
                           return contains(one, "non-zero exit code") || contains(one, "non-zero status") ||
                                  contains(one, "MPI_ABORT was invoked");
                         });
  if (!is_banner) return give_up_block();
  block_.clear();
  return "";
}

std::string BannerFilter::give_up_block() {
  std::string shown;
  for (const auto& held : block_) shown += held + "\n";
  block_.clear();
  return shown;
}

std::string BannerFilter::finish() {
  return give_up_block() + std::exchange(rest_, "");
}

std::string folder_in(const std::string& run_file) {
  return run_file.empty() ? "" : base::first_line(run_file);
}

void note_signal(int signal, StopSignal& stop) {
  if (signal == SIGTERM && stop.job_seconds < 0) stop.job_seconds = seconds_of_session();
  if (stop.signal != SIGTERM) stop.signal = signal;
}

namespace {

// Nothing where the folder cannot be read now: a file system may be away for a while.
std::optional<int> status_said_by(const std::string& folder) {
  if (folder.empty()) return std::nullopt;
  try {
    return run_folder::job_status(folder).exit_status;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

int status_of_run(const std::string& folder) {
  return status_said_by(folder).value_or(kFailed);
}

void end_leftovers() {
  const auto until = Clock::now() + kDrain;
  if (const auto left = descendants(); !left.empty())
    say(format("sending SIGKILL to {} processes that the launcher left", left.size()));
  for (auto left = descendants(); !left.empty() && Clock::now() < until; left = descendants()) {
    for (const auto pid : left) ::kill(pid, SIGKILL);
    std::this_thread::sleep_for(kLook);
  }
}

std::vector<pid_t> descendants(const std::string& name) {
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
      open.push_back(child);
      if (name.empty() || names[child] == name.substr(0, 15)) found.push_back(child);
    }
  }
  return found;
}

int64_t seconds_of_session() {
  const auto stat = base::first_line(format("/proc/{}/stat", ::getsid(0)));
  const auto close = stat.rfind(')');
  if (close == std::string::npos) return 0;
  std::vector<std::string> fields;
  for (size_t at = close + 2, end; at < stat.size(); at = end + 1) {
    end = std::min(stat.find(' ', at), stat.size());
    fields.push_back(stat.substr(at, end - at));
  }
  constexpr size_t kStartTime = 19;  // the 22nd field of proc(5), after the two before ')'
  if (fields.size() <= kStartTime) return 0;
  const double up = std::strtod(base::first_line("/proc/uptime").c_str(), nullptr);
  const double started = static_cast<double>(base::number_in(fields[kStartTime]).value_or(0)) /
                         static_cast<double>(::sysconf(_SC_CLK_TCK));
  return static_cast<int64_t>(up - started);
}

namespace {

// The job's groups that this process is in, innermost first; above them are other jobs'.
std::vector<std::string> job_groups(const std::string& mark, const std::string& folder,
                                    const std::string& own) {
  std::vector<std::string> groups;
  std::ifstream file(own);
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const auto controller = line.substr(first + 1, second - first - 1);
    if (!controller.empty() && controller != "memory") continue;
    auto path = folder + (controller.empty() ? "" : "/memory") + line.substr(second + 1);
    while (path.ends_with(mark) || contains(path, (mark + "/").c_str())) {
      groups.push_back(path);
      path = fs::path(path).parent_path().string();
    }
  }
  return groups;
}

// A limit of 2^62 is none.
std::string gigabytes_in(const std::vector<std::string>& files) {
  for (const auto& file : files) {
    const auto number = base::number_in(base::first_line(file));
    if (number && *number < (1LL << 62))
      return format("{:.2f} GiB", static_cast<double>(*number) / (1 << 30));
  }
  return "unknown";
}

}  // namespace

std::string memory_kills(const std::string& job_mark, const std::string& cgroup_folder,
                         const std::string& own_cgroups) {
  std::string text;
  for (const auto& group : job_groups(job_mark, cgroup_folder, own_cgroups)) {
    auto kills = base::field(group + "/memory.events", "oom_kill ");
    if (kills.empty()) kills = base::field(group + "/memory.oom_control", "oom_kill ");
    if (base::number_in(kills).value_or(0) <= 0) continue;
    text = format("{} in all (limit {}, peak {})", kills,
                  gigabytes_in({group + "/memory.max", group + "/memory.limit_in_bytes"}),
                  gigabytes_in({group + "/memory.peak", group + "/memory.max_usage_in_bytes"}));
  }
  return text;
}

// ---- one start ----

namespace {

uintmax_t size_of(const std::string& file) {
  std::error_code none;
  const auto size = fs::file_size(file, none);
  return none ? 0 : size;
}

class RanksRun {
 public:
  RanksRun(Scheduler& scheduler, Signals& signals, StopSignal& stop, RanksPlan plan)
      : scheduler_(scheduler), signals_(signals), stop_(stop), plan_(std::move(plan)) {}

  RanksEnd run() {
    for (const int signal : signals_.take()) forward(signal);  // what came before there were ranks
    start();
    deliver();
    while (!has_ended()) {
      std::array<pollfd, 2> ready{pollfd{signals_.descriptor(), POLLIN, 0},
                                  pollfd{errors_.number(), POLLIN, 0}};
      ::poll(ready.data(), ready.size(), static_cast<int>(kLook.count()));
      read_errors();
      for (const int signal : signals_.take()) forward(signal);
      deliver();
      look();
    }
    // a process that the launcher left behind may hold the pipe open
    const auto until = Clock::now() + (status_ == 128 + SIGKILL ? kDrainAfterKill : kDrain);
    while (errors_ && Clock::now() < until) {
      pollfd ready{errors_.number(), POLLIN, 0};
      ::poll(&ready, 1, static_cast<int>(kLook.count()));
      read_errors();
    }
    base::write_all(STDERR_FILENO, filter_.finish());
    end_.status = status_;
    if (silent_.valid()) end_.silent_nodes = silent_.get(), end_.nodes_were_probed = true;
    const auto mark = scheduler_.is_slurm() ? "/job_" + scheduler_.job_id() : "/" + scheduler_.job_id();
    auto kills = memory_kills(mark);
    if (!kills.empty()) kills = "on this node, " + kills;
    if (kills.empty() && !filter_.memory_kill().empty()) kills = "in a step (Slurm's line above names it)";
    end_.out_of_memory = !kills.empty();
    if (end_.out_of_memory)
      say(format(
          "the job's memory limit has killed a process {}; ask for more (Slurm: --mem, PBS: mem= in select), "
          "or use less: data.batch_size, data.workers, ranks on a node",
          kills));
    return end_;
  }

 private:
  void start() {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
      throw Error("no pipe for the ranks' errors: " + std::string(std::strerror(errno)));
    errors_ = base::Descriptor(ends[0]);
    const base::Descriptor write(ends[1]);
    ::fcntl(write.number(), F_SETFL, ::fcntl(write.number(), F_GETFL) & ~O_NONBLOCK);
    base::Program program{.argv = plan_.launcher.words, .output = STDOUT_FILENO, .errors = write.number()};
    program.argv.insert(program.argv.end(), plan_.words.begin(), plan_.words.end());
    for (const auto& [name, setting] : plan_.environment) program.settings.push_back(name + "=" + setting);
    for (char** entry = environ; *entry; ++entry) {
      const std::string_view text = *entry;
      const std::string name(text.substr(0, text.find('=')));
      if (!plan_.environment.contains(name)) program.without.push_back(name);
    }
    errors_before_ = size_of(plan_.errors_file);
    if (const int code = base::start_program(program, child_); code != 0)
      throw InputError(format("{} cannot be started: {}", program.argv[0], std::strerror(code)),
                       program.argv[0]);
  }

  void read_errors() {
    std::array<char, 65536> part;
    while (errors_) {
      const auto got = ::read(errors_.number(), part.data(), part.size());
      if (got > 0) base::write_all(STDERR_FILENO, filter_.add({part.data(), static_cast<size_t>(got)}));
      if (got == 0) errors_.close();
      if (got <= 0 && !(got < 0 && errno == EINTR)) return;
    }
  }

  bool has_ended() {
    if (child_ < 0) return true;
    int status = 0;
    // the others are orphans of the launcher's, which are ours to reap
    for (pid_t done; (done = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (done != child_) continue;
      status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      child_ = -1;
      return true;
    }
    return false;
  }

  void forward(int signal) {
    if (signal == SIGUSR1 && scheduler_.is_slurm() && !was_warned_) {
      was_warned_ = true;
      if (const auto seconds = scheduler_.early_by(); seconds > 0) {
        say(format(
            "SIGUSR1, with time left: this job is shorter than the lead of its --signal, so it goes on "
            "for {} s; "
            "a second one counts",
            seconds));
        early_until_ = Clock::now() + std::chrono::seconds(seconds);
        return;
      }
    }
    note_signal(signal, stop_);
    if (signal == SIGTERM) {
      say("SIGTERM: the job is being cancelled, pre-empted, or out of time");
    }
    if (!scheduler_.is_slurm() && child_ > 0) {
      // PBS signals every process of a job; a second SIGTERM would make mpirun leave without its ranks
      say(format("got {}, as the ranks have", name_of_signal(signal)));
      return;
    }
    say(format("got {}, telling the ranks", name_of_signal(signal)));
    pending_ = signal;
  }

  // A launcher or a rank that is only just starting would die of SIGUSR1, so it waits for the run's folder.
  // In Slurm SIGUSR1 also stands for SIGTERM: one SIGTERM makes srun kill its ranks, and mpirun leaves after
  // two.
  void deliver() {
    if (early_until_ && Clock::now() >= *early_until_) {
      early_until_.reset();
      forward(SIGUSR1);
    }
    if (pending_ == 0 || child_ < 0) return;
    const bool trains = !plan_.run_file.empty();
    int signal = pending_;
    if (scheduler_.is_slurm() && trains && signal == SIGTERM)
      signal = SIGUSR1;  // an eval has nothing to save
    if (signal != SIGTERM && trains) {
      if (!folder_since_ && !folder_in(plan_.run_file).empty()) folder_since_ = Clock::now();
      if (!folder_since_ || Clock::now() < *folder_since_ + kAfterFolder) return;
    }
    pending_ = 0;
    ::kill(child_, signal);
    if (scheduler_.is_slurm() && !plan_.launcher.is_srun)
      for (const auto rank : descendants(fs::path(plan_.words[0]).filename().string())) ::kill(rank, signal);
  }

  void end_launcher(const std::string& why) {
    if (child_ < 0) return;
    say(format("{}: sending SIGKILL to {} and what is below it", why, plan_.launcher.words[0]));
    for (const auto process : descendants()) ::kill(process, SIGKILL);  // a wrapper's, too
  }

  // A launcher may wait minutes for a node that is cut off, or after a SIGTERM, when its run is over.
  void look() {
    if (child_ < 0 || Clock::now() - looked_ < 200ms) return;
    looked_ = Clock::now();
    const auto folder = folder_in(plan_.run_file);
    if (plan_.survives_losses) look_for_losses();
    const bool soon = stop_.signal == SIGTERM && !plan_.launcher.is_srun;
    if (folder.empty() || (!soon && Clock::now() - last_stay_ < kBetweenStays)) return;
    last_stay_ = Clock::now();
    const bool is_over = descendants(fs::path(plan_.words[0]).filename().string()).empty() &&
                         status_said_by(folder).value_or(run_folder::kRunning) != run_folder::kRunning;
    stays_ = is_over ? stays_ + 1 : 0;
    if (is_over && (soon || stays_ >= 2)) end_launcher("the run is over, and no rank is here");
  }

  void look_for_losses() {
    const bool was_reported = size_of(plan_.errors_file) > errors_before_;
    const auto folder = folder_in(plan_.run_file);
    const auto is_gone = [&] {
      return descendants(fs::path(plan_.words[0]).filename().string()).empty() &&
             (!plan_.launcher.is_srun || status_said_by(folder) == kFailed);
    };
    ++looks_;
    if (!lost_since_) {
      const bool looks_dead = looks_ % 25 == 0 && status_said_by(folder) == kFailed && is_gone();
      if (!was_reported && !looks_dead) return;
      lost_since_ = Clock::now();
      if (plan_.probe_nodes) silent_ = std::async(std::launch::async, plan_.probe_nodes);
    }
    if (!is_gone() && Clock::now() - *lost_since_ < kLastWords) return;
    // a launcher leaves by itself, and srun's ranks, which are not below this process, have last words
    if (Clock::now() - *lost_since_ < (plan_.launcher.is_srun ? 2s : 500ms)) return;
    if (!std::exchange(was_ended_, true)) end_launcher("ranks were lost, and it has not left");
  }

  Scheduler& scheduler_;
  Signals& signals_;
  StopSignal& stop_;
  RanksPlan plan_;
  BannerFilter filter_;
  base::Descriptor errors_;
  pid_t child_ = -1;
  int status_ = 0;
  RanksEnd end_;
  Clock::time_point looked_ = Clock::now(), last_stay_ = Clock::now();
  std::optional<Clock::time_point> lost_since_, folder_since_, early_until_;
  std::future<std::set<std::string>> silent_;
  uintmax_t errors_before_ = 0;
  int stays_ = 0, looks_ = 0, pending_ = 0;
  bool was_warned_ = false, was_ended_ = false;
};

}  // namespace

RanksEnd run_ranks(Scheduler& scheduler, Signals& signals, StopSignal& stop, RanksPlan plan) {
  return RanksRun(scheduler, signals, stop, std::move(plan)).run();
}

}  // namespace lockstep::job
