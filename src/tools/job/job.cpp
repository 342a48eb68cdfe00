// `lockstep job`: reads the allocation, starts the ranks, restarts lost ones, and continues stopped runs.
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <sstream>
#include <thread>

#include "lockstep/base/files/checkpoint_files.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/identify.h"
#include "tools/job/job.h"
#include "trainer/config/config_text.h"
#include "trainer/config/yaml.h"
#include "trainer/run_folder/folder.h"
#include "trainer/run_folder/status.h"

namespace lockstep::job {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Words = std::vector<std::string>;

std::vector<std::string> words_in(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

std::vector<std::string> lines_of(const std::string& file) {
  std::vector<std::string> lines;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// What the host answers in time: 2 = it accepts a connection, 1 = it refuses it, 0 = nothing; -1 = an unknown
// name or a lack of sockets, which says nothing about the host.
int contact(const std::string& host, int port, std::chrono::milliseconds limit) {
  addrinfo wanted{}, *list = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), format("{}", port).c_str(), &wanted, &list) != 0) return -1;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> found(list, &::freeaddrinfo);
  const base::Descriptor socket(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return -1;
  if (::connect(socket.number(), found->ai_addr, found->ai_addrlen) == 0) return 2;
  int error = errno;
  socklen_t size = sizeof error;
  pollfd ready{socket.number(), POLLOUT, 0};
  if (error == EINPROGRESS && ::poll(&ready, 1, static_cast<int>(limit.count())) == 1)
    ::getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? 2 : error == ECONNREFUSED ? 1 : 0;
}

class Job {
 public:
  Job(Signals& signals, std::string program)
      : signals_(signals),
        program_(std::move(program)),
        run_command_(cluster::real_commands(30s)),
        job_(make_job(environment_, run_command_)) {}

  int run(const std::string& command, const std::vector<std::string>& words) {
    if (command == "train") return recorded([&] { return train(words); });
    if (command == "eval") return eval(words);
    if (command == "bench" || command == "check") return bench(command, words);
    return own_program(words);
  }

 private:
  // For lockstep submit: LOCKSTEP_RECORD names a file that gets a line for each event.
  void record(const std::string& event, std::string words = "") const {
    auto path = value(environment_, "LOCKSTEP_RECORD");
    if (path.empty()) return;
    const auto task = value(environment_, "SLURM_ARRAY_TASK_ID", value(environment_, "PBS_ARRAY_INDEX"));
    if (!task.empty()) path += "." + task;
    std::ranges::replace(words, '\n', ' ');
    const int flags = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    const base::Descriptor file(::open(path.c_str(), flags, 0644));
    base::write_all(file.number(), format("{} {}{}{}\n", event, job_->id(), words.empty() ? "" : " ", words));
  }

  // The script's end is the job's end, unless the scheduler restarts the job.
  int recorded(const std::function<int()>& work) {
    record("begin");
    try {
      const int status = work();
      if (!restarts_) record("end", format("{} {}", status, run_));
      return status;
    } catch (const std::exception& error) {
      record("end", format("{} {}", int{exit_status(error)}, run_));
      throw;
    }
  }

  void prepare(bool is_training) {
    allocation_ = job_->allocation();
    signals_.ignores_warning = job_->is_warned_early();
    if (const auto home = base::home_folder(); !home.empty())
      environment_["LOCKSTEP_HOME"] = fs::absolute(home).string();
    lay_out_ranks(is_training);
    say(format("{} job {}: {} on {}, {} per rank{}", job_->is_slurm() ? "Slurm" : "PBS", job_->id(),
               base::counted(layout_.ranks, "rank"), base::counted(layout_.nodes, "node"),
               base::counted(layout_.cores_per_rank, "core"),
               restarts() > 0 ? format(", restart {}", restarts()) : ""));
    say(format("LOCKSTEP_HOME {}, program {}", value(environment_, "LOCKSTEP_HOME"), program_));
    say("start: " + base::join(launcher_, " "));
    const auto times = job_->times();
    queued_ = times.queued;
    began_ = std::floor(run_folder::unix_now()) -
             static_cast<double>(times.running > 0 ? times.running : seconds_of_session());
  }

  int64_t restarts() const { return std::max(job_->restarts(), count(environment_, "LOCKSTEP_RESTART", 0)); }

  void lay_out_ranks(bool is_training) {
    layout_ = lay_out(allocation_, environment_);
    for (const auto& warning : layout_.warnings) say("warning: " + warning);
    launcher_ = choose_launcher({*job_, allocation_, layout_, is_training, relaunches_,
                                 base::home_folder() + "/job_scripts/pbs_agent.sh", own_cores()},
                                environment_, run_command_);
  }

  int run_once(const std::vector<std::string>& words) {
    end_ = run_ranks(*job_, signals_, {.launcher = launcher_, .words = words, .environment = environment_});
    if (end_.status != 0) report_memory();
    return end_.status;
  }

  // ---- train ----

  int train(std::vector<std::string> words) {
    words_ = words;
    config_ = value(environment_, "CONFIG", "configs/mnist.yaml");
    if (!words.empty() && !words[0].starts_with("-")) {
      config_ = words[0];
      words.erase(words.begin());
    }
    arguments_ = settings_in(value(environment_, "SET"));
    arguments_.insert(arguments_.end(), words.begin(), words.end());
    max_restarts_ = count(environment_, "LOCKSTEP_MAX_RESTARTS", 10);
    max_relaunches_ = count(environment_, "LOCKSTEP_MAX_RELAUNCHES", 3);
    node_timeout_ = std::chrono::seconds(count(environment_, "LOCKSTEP_NODE_TIMEOUT", 3, 1));
    is_chain_ = !value(environment_, "LOCKSTEP_LINK").empty();
    const auto kept = value(environment_, "LOCKSTEP_RUN_FILE");
    keeps_run_file_ = !kept.empty();
    run_file_ = keeps_run_file_ ? fs::absolute(kept).string() : own_file("run");
    record("file", run_file_);
    prepare(true);
    read_as_world();
    look_at_nodes();
    saved_before_ = base::number_in(value(environment_, "LOCKSTEP_SAVED_STEP"));
    if (const auto status = find_run_to_continue()) {
      forget_run_file();
      return *status;
    }
    auto status = train_once();
    while (relaunch(status)) status = train_once();
    for (int i = 0; i <= relaunches_; ++i) fs::remove(errors_file(i), none_);
    return finish(status);
  }

  // The job's files are in the folder of submission, which all nodes see, and a restarted job finds them.
  std::string own_file(const std::string& kind) const {
    const auto cluster = value(environment_, "SLURM_CLUSTER_NAME");
    return (fs::current_path() /
            format(".lockstep-{}-{}{}", kind, cluster.empty() ? "" : cluster + ".", job_->id()))
        .string();
  }
  std::string errors_file(int attempt) const { return own_file(format("errors{}", attempt)); }

  // train.as_world in the config and the last --set, or 0 if a lost rank ends the run. This program has no
  // libtorch, and so no tables of keys.
  void read_as_world() {
    if (max_relaunches_ == 0 || allocation_.components > 1) return;
    std::string found;
    try {
      const auto config = config::read_config_text(config_);
      const auto root = config::parse_yaml(config.text, config.name);
      for (const auto& [section, map] : root->entries) {
        for (const auto& [key, node] : map->entries)
          if (section->text == "train" && key->text == "as_world") found = node->text;
      }
    } catch (const Error&) {  // the ranks report it
      return;
    }
    constexpr std::string_view kSet = "train.as_world=";
    for (const auto& word : arguments_) {
      const auto setting = word.starts_with("--set=") ? word.substr(6) : word;
      if (setting.starts_with(kSet)) found = setting.substr(kSet.size());
    }
    as_world_ = std::max<int64_t>(0, base::number_in(found).value_or(0));
  }

  static std::string run_in(const std::string& file) {
    if (fs::is_symlink(file) || run_folder::is_of_another_user(file))
      throw InputError("the file with the run's path is a link, or belongs to another user", file,
                       "remove it");
    return base::first_line(file);
  }

  int train_once() {
    base::check_output(run_file_, "submit from a folder that can be written");
    base::replace_file(run_file_, "");
    fs::remove(errors_file(relaunches_), none_);
    const auto cores = sum_of(&Node::cpus, allocation_) / allocation_.threads_per_core;
    RanksPlan plan{
        .launcher = launcher_,
        .words = {program_, "train", config_, "--resume", run_.empty() ? "auto" : run_, "--run-file",
                  run_file_, "--errors", errors_file(relaunches_), "--allocation",
                  format("{:.0f},{},{},{}", began_, cores, sum_of(&Node::gpus, allocation_), queued_)},
        .environment = environment_,
        .run_file = run_file_,
        .errors_file = errors_file(relaunches_),
        .survives_losses = as_world_ > 0};
    if (as_world_ > 0 && value(environment_, "LOCKSTEP_SILENCE").empty())
      plan.words.insert(plan.words.end(), {"--silence", "5"});
    plan.words.insert(plan.words.end(), arguments_.begin(), arguments_.end());
    end_ = run_ranks(*job_, signals_, std::move(plan));
    if (end_.out_of_memory.empty()) end_.out_of_memory = job_->memory_exceeded();
    // the ranks know another reason
    if (end_.is_guess && !only_ranks_were_lost(errors(), false)) end_.out_of_memory.clear();
    const auto folder = run_in(run_file_);
    // without a run folder, the ranks exit with 2 if they reject the input
    if (folder.empty()) return end_.status == 0 || end_.status == kBadInput ? kBadInput : kFailed;
    run_ = folder;
    has_trained_ = true;
    // launchers change exit statuses and may exit before their ranks, so the run folder has the result
    const auto until = std::chrono::steady_clock::now() + 10s;
    auto status = status_of_run(run_);
    for (; status == run_folder::kRunning && std::chrono::steady_clock::now() < until;
         status = status_of_run(run_))
      std::this_thread::sleep_for(200ms);
    return status;
  }

  // A restarted job continues its own run, and a link of a chain that of the link before. Returns the exit
  // status if there is nothing to continue.
  std::optional<int> find_run_to_continue() {
    if (job_->restarts() == 0 && !is_chain_) return std::nullopt;
    const auto folder = run_in(run_file_);
    if (folder.empty() || !fs::is_directory(folder, none_)) {
      if (job_->restarts() > 0 || value(environment_, "LOCKSTEP_LINK") == "1") return std::nullopt;
      say("the chain has ended: an earlier job was canceled or did not start a run");
      return kFailed;
    }
    const auto status = status_of_run(folder);
    if (status == kDone) return say("the run has already finished"), kDone;
    if (status == run_folder::kStoppedOnRequest) {
      say("the run was stopped on request and is not restarted; submit again to continue");
      return is_chain_ ? int{kFailed} : status;
    }
    if (job_->restarts() == 0 && status != kStoppedEarly) {
      say(status == run_folder::kRunning ? "the run is still running: this chain job does not resume it"
                                         : "the run failed: this chain job does not retry it");
      return kFailed;
    }
    run_ = folder;
    saved_before_ = saved_step();
    return std::nullopt;
  }

  int finish(int status) {
    note_signals();  // a signal after the ranks' end still decides whether the job continues
    if (has_trained_) report_run();
    if (status != kFailed && status != run_folder::kRunning) end_.out_of_memory.clear();
    if (end_.out_of_memory.empty()) end_.out_of_memory = job_->memory_exceeded();
    report_memory();
    if (status == run_folder::kRunning)
      say("the launcher has exited, but its run is marked as running: check for processes on the nodes");
    if (status == run_folder::kStoppedOnRequest) say("the run was stopped on request and is not restarted");
    if (status == kStoppedEarly) return continue_run();
    forget_run_file();
    if (status != kDone && status != kBadInput) say_how_to_continue();
    return status;
  }

  // Prints how the run ended, and what it has used until now. Nothing here may keep the job from continuing.
  void report_run() {
    for (const auto& step : {&Job::complete_status, &Job::print_status}) {
      try {
        (this->*step)();
      } catch (const std::exception& error) {
        log::warning(describe(error));
      }
    }
  }

  void complete_status() {
    const auto report = run_folder::job_status(run_);
    auto status = report.status;
    if (status.job_id != job_->id() || run_folder::in_use(run_)) return;
    if (report.exit_status == kFailed && !end_.out_of_memory.empty() && !end_.is_guess)
      status.reason = "out of memory: " + end_.out_of_memory;
    if (!interrupted_.empty()) {
      status.state = run_folder::RunState::stopped_early;
      status.reason = interrupted_;
    }
    const bool is_urgent = signals_.stop != 0 || report.exit_status == kStoppedEarly;
    if (!is_urgent) add_energy(status.cost);  // sacct may take its time
    run_folder::write_status(run_, status);
  }

  void print_status() { output::print(run_folder::job_status(run_).text + "\n"); }

  // The scheduler's measurement, if the ranks could not read a counter.
  void add_energy(run_folder::Cost& cost) {
    if (!cost.energy_source.empty() && !cost.energy_source.starts_with("Slurm")) return;
    const double joules = job_->joules();
    if (joules == 0) return;
    cost.energy_joules = joules;
    cost.energy_source = "Slurm, job " + job_->id();
  }

  void report_memory() const {
    if (end_.out_of_memory.empty()) return;
    say("out of memory: " + end_.out_of_memory);
    say(job_->is_slurm() ? "  request more: sbatch --mem=SIZE"
                         : "  request more: qsub -l select=...:mem=SIZE");
    say("  or use less in each rank: data.batch_size, data.workers, model.checkpointing");
    say(format("  or start fewer ranks on a node: LOCKSTEP_RANKS_PER_NODE (now {})",
               (layout_.ranks + layout_.nodes - 1) / layout_.nodes));
  }

  void say_how_to_continue() const {
    const auto line = is_chain_ ? "" : job_->submit_line(words_);
    say("to continue, submit " + (line.empty() ? "the same config and options again" : "again: " + line));
  }

  void note_signals() {
    for (const int signal : signals_.take()) signals_.note(signal);
  }

  // Not if a user named it, and not if the scheduler may restart this job.
  void forget_run_file() {
    if (keeps_run_file_) return;
    const bool may_restart = !job_->is_slurm() && signals_.stop == SIGTERM;
    const auto fate = may_restart ? job_->fate(signals_.stop) : Fate::ended;
    if (fate == Fate::ended || fate == Fate::cancelled) fs::remove(run_file_, none_);
  }

  // The exit status if nobody has to continue the run: the scheduler restarts the job, or it is cancelled, or
  // the scheduler does not tell.
  std::optional<int> decided() {
    note_signals();
    const auto fate = job_->fate(signals_.stop);
    if (fate == Fate::ended) return std::nullopt;
    if (fate == Fate::restarts) {
      say(format("stopped early; {} restarts this job", job_->is_slurm() ? "Slurm" : "PBS"));
      restarts_ = true;
      return kStoppedEarly;
    }
    const auto end = fate == Fate::unknown        ? "cannot determine whether the job was canceled"
                     : end_.out_of_memory.empty() ? "canceled"
                                                  : "ended by the scheduler";
    say(format("{}{}; the run is not restarted", end, saved_step() ? ", with a checkpoint" : ""));
    if (is_chain_ && fate != Fate::unknown) fs::remove(run_file_, none_);
    return stay_stopped();
  }

  int continue_run() {
    if (const auto status = decided()) return *status;
    if (!value(environment_, "LOCKSTEP_IS_LAST_LINK").empty())
      return say("stopped early; this was the last job of the chain"), stay_stopped();
    if (is_chain_) return say("stopped early; the next job of the chain resumes the run"), kStoppedEarly;
    const bool is_stuck = restarts() > 0 && saved_step() <= saved_before_;
    if (is_stuck || restarts() >= max_restarts_) {
      say(is_stuck ? "stopped early, and no step has completed since the last restart: request more time"
                   : format("stopped early after {} (LOCKSTEP_MAX_RESTARTS={})",
                            base::counted(restarts(), "restart"), max_restarts_));
      return stay_stopped();
    }
    say(format("stopped early; restart {} of at most {}", restarts() + 1, max_restarts_));
    environment_["LOCKSTEP_SAVED_STEP"] = format("{}", saved_step().value_or(0));  // for a new job
    auto next = job_->continue_run();
    for (; !next && signal_waits(); next = job_->continue_run())  // it was busy or down until the signal
      if (const auto status = decided()) return *status;
    if (!next)
      return say("the job could not resubmit itself. If this site forbids that, use lockstep submit --chain"),
             stay_stopped();
    if (*next == kPerhaps) return kStoppedEarly;
    if (next->empty()) {
      restarts_ = true;
      return kDone;
    }
    say(format("job {} continues the run", *next));
    record("next", *next);
    forget_run_file();
    return kStoppedEarly;  // not 0, which would release a job that depends on this one's success
  }

  int stay_stopped() {
    forget_run_file();
    say_how_to_continue();
    return kStoppedEarly;
  }

  // ---- lost ranks ----

  std::vector<std::string> errors() const { return lines_of(errors_file(relaunches_)); }

  // What each node answers at the port of the scheduler's daemon. One that answers less than at the job's
  // start is asked again: the network may be slow, and a daemon that restarts refuses for some seconds.
  std::map<std::string, int> contacts() const {
    std::map<std::string, std::future<int>> answers;
    for (const auto& [host, before] : contacts_)
      answers[host] = std::async([this, host, before] {
        for (const auto start = std::chrono::steady_clock::now();; std::this_thread::sleep_for(2s)) {
          const int answer = contact(host, port_, node_timeout_);
          const auto limit =
              (answer == 1 ? 7 : 1) * node_timeout_;  // TCP itself tries again when it is silent
          if (answer >= before || std::chrono::steady_clock::now() - start >= limit) return answer;
          if (signal_waits()) return before;  // the job stops early
        }
      });
    std::map<std::string, int> all;
    for (auto& [host, answer] : answers) all[host] = answer.get();
    return all;
  }

  // While all nodes work, so that a firewall is not taken for a lost node.
  void look_at_nodes() {
    if (as_world_ == 0) return;
    const auto here = short_name(launch::read_host_facts({}).host);
    for (const auto& node : allocation_.nodes)
      if (!node.name.empty() && node.name != value(environment_, "SLURMD_NODENAME") &&
          short_name(node.name) != here)
        contacts_[node.name] = 0;
    const auto nodes = contacts_.size();
    if (nodes == 0) return;
    port_ = job_->daemon_port();
    if (port_ > 0) contacts_ = contacts();
    std::erase_if(contacts_, [](const auto& node) { return node.second <= 0; });
    if (contacts_.size() < nodes)
      say(format("warning: other nodes that do not respond: {} of {} ({}); a loss would not be noticed",
                 nodes - contacts_.size(), nodes,
                 port_ > 0 ? format("port {}", port_) : "an unknown port (scontrol show config failed)"));
  }

  // If no other node answers, this node's own network may be down. If several do and all refuse, all daemons
  // may be restarting.
  Words find_lost_nodes() {
    Words lost;
    bool all_refuse = contacts_.size() > 1;
    for (const auto& [name, answer] : contacts()) {
      if (answer >= 0 && answer < contacts_[name]) lost.push_back(name);
      all_refuse = all_refuse && answer == 1;
    }
    if (lost.empty() || all_refuse) return {};
    if (lost.size() == contacts_.size() && !job_->answers()) {
      say("neither the scheduler nor another node responds to this node, so no node counts as lost");
      return {};
    }
    for (const auto& name : lost) contacts_.erase(name);
    return lost;
  }

  // Whether to start the ranks again. After a signal, the job stops early instead.
  bool relaunch(int& status) {
    if (status != kFailed && status != run_folder::kRunning) return false;
    const bool is_out_of_memory = !end_.out_of_memory.empty() && !end_.is_guess;
    if (max_relaunches_ == 0 || allocation_.components > 1 || is_out_of_memory) return false;
    if (as_world_ == 0) {
      if (layout_.ranks > 1 && !errors().empty() && only_ranks_were_lost(errors(), false))
        say(lost_ranks() +
            ": with train.as_world the job would have restarted the ranks (docs/how-to/elastic.md)");
      return false;
    }
    // srun has the highest status of its ranks, and ends the others with SIGTERM
    const bool was_killed = end_.status == 128 + SIGKILL || end_.status == 128 + SIGTERM;
    const bool nothing_known = !has_trained_ && !was_killed && errors().empty();
    if (!only_ranks_were_lost(errors(), true)) return false;
    if (relaunches_ >= max_relaunches_) {
      if (!nothing_known)
        say(format("{}; giving up after {} relaunch{} (LOCKSTEP_MAX_RELAUNCHES)", lost_ranks(), relaunches_,
                   relaunches_ == 1 ? "" : "es"));
      return false;
    }
    Words lost;
    if (signals_.stop == 0) lost = find_lost_nodes();
    if ((nothing_known && lost.empty()) || !only_ranks_were_lost(errors(), !lost.empty())) return false;
    note_signals();
    if (signals_.stop != 0) {
      interrupted_ = format("SIG{}; {}", ::sigabbrev_np(signals_.stop), what_is_lost(lost));
      end_leftovers(signals_);
      status = kStoppedEarly;
      return false;
    }
    if (is_enough(lost)) return false;
    leave_out(lost);
    return true;
  }

  std::string what_is_lost(const std::vector<std::string>& lost) const {
    if (lost.empty()) return lost_ranks();
    return lost.size() == 1 ? format("node {} does not respond", lost[0])
                            : format("nodes {} do not respond", base::join(lost, ", "));
  }

  std::string lost_ranks() const {
    for (const auto& line : errors()) {
      const auto fault = base::fault_in(line);
      if (!fault || fault->ranks.empty()) continue;
      return base::rank_list(fault->ranks) + (fault->ranks.size() == 1 ? " was lost" : " were lost");
    }
    return "the ranks were lost";
  }

  std::optional<int64_t> saved_step() const {
    std::optional<int64_t> newest;
    std::error_code unreadable;
    if (run_.empty()) return newest;
    for (const auto& path : base::checkpoints_in(run_ + "/checkpoints", unreadable))
      newest = std::max(newest, base::step_in_name(path.filename().string()));
    return newest;
  }

  // If rank 0 was killed, its status has a step of some seconds before.
  int64_t last_step() const {
    try {
      const auto status = run_.empty() ? run_folder::RunStatus() : run_folder::read_status(run_);
      return status.state == run_folder::RunState::running ? saved_step().value_or(0) : status.step;
    } catch (const Error&) {  // the lost node may have damaged it
      return 0;
    }
  }

  // A step that kills a rank each time would do so on any node.
  bool is_enough(const std::vector<std::string>& lost) {
    const auto step = last_step();
    const auto before = std::exchange(lost_at_, std::nullopt);
    if (lost.empty()) lost_at_ = step;
    if (!lost_at_ || lost_at_ != before) return false;
    say(
        format("{} twice after step {}, and no lost node was found, so the job does not restart the ranks: "
               "if a node hangs (see {}), submit again without that node",
               lost_ranks(), step, job_->is_slurm() ? "sinfo -R" : "pbsnodes -l"));
    return true;
  }

  void leave_out(const std::vector<std::string>& lost) {
    std::erase_if(allocation_.nodes,
                  [&](const Node& node) { return std::ranges::count(lost, node.name) > 0; });
    const auto saved = saved_step();
    say(format("{}; continuing with {}{} {} (relaunch {} of at most {})", what_is_lost(lost),
               lost.empty() ? "the same " : "", base::counted(std::ssize(allocation_.nodes), "node"),
               saved ? format("after step {}", *saved) : "from the first step", relaunches_ + 1,
               max_relaunches_));
    ++relaunches_;
    if (const auto warning = job_->keep_only(allocation_, lost); !warning.empty()) say("warning: " + warning);
    end_leftovers(signals_);
    lay_out_ranks(true);
    say("start: " + base::join(launcher_, " "));
  }

  // ---- the other commands ----

  int eval(std::vector<std::string> words) {
    if (words.empty()) words = {run_in(value(environment_, "LOCKSTEP_RUN_FILE"))};
    if (words[0].empty()) throw InputError("missing argument RUN_FOLDER", "", "pass a run folder");
    prepare(false);
    words.insert(words.begin(), {program_, "eval"});
    return run_once(words);
  }

  int bench(const std::string& command, std::vector<std::string> words) {
    if (words.empty() && command == "bench") words = words_in(value(environment_, "BENCH", "allreduce"));
    prepare(false);
    // these start their own ranks, on this node
    if (command == "check" || words[0] == "dp-vs-ddp") launcher_ = {"env"};
    words.insert(words.begin(), {program_, command});
    return run_once(words);
  }

  int own_program(std::vector<std::string> words) {
    const auto name = words.empty() ? "" : words[0];
    if (::access(name.c_str(), X_OK) != 0 || fs::is_directory(name, none_))
      throw InputError(fs::exists(name, none_) ? "not an executable program" : "no such program",
                       (value(environment_, "OWN_PROGRAM") == name ? "OWN_PROGRAM=" : "") + name,
                       "pass the path of a program, relative to the submission directory");
    words[0] = fs::absolute(name).string();
    prepare(false);
    say("your program: " + words[0]);
    return run_once(words);
  }

  Signals& signals_;
  std::string program_;
  Environment environment_ = launch::current_environment();
  RunCommand run_command_;
  std::unique_ptr<OwnJob> job_;
  Allocation allocation_;
  Layout layout_;
  std::string config_, run_file_, run_;
  std::string interrupted_;  // "SIGUSR1; rank 3 was lost"
  std::vector<std::string> words_, arguments_, launcher_;
  bool is_chain_ = false, keeps_run_file_ = false, restarts_ = false;
  int port_ = 0;                         // of the scheduler's daemon on every node
  std::map<std::string, int> contacts_;  // what the other nodes answered there at the job's start
  bool has_trained_ = false;             // this job's launcher has started ranks that opened the run
  int64_t max_restarts_ = 10, max_relaunches_ = 3, as_world_ = 0;
  std::chrono::milliseconds node_timeout_{3000};
  RanksEnd end_;
  double began_ = 0;  // the job, in seconds since 1970
  int64_t queued_ = 0;
  int relaunches_ = 0;
  std::optional<int64_t> lost_at_;
  std::optional<int64_t> saved_before_;  // the step of the newest checkpoint when this restart began
  std::error_code none_;
};

}  // namespace

bool only_ranks_were_lost(const std::vector<std::string>& errors, bool nodes_lost) {
  return std::ranges::all_of(errors, [&](const std::string& line) {
    const auto fault = base::fault_in(line);
    if (!fault) return true;  // half a line from a killed rank
    switch (fault->code) {
      case Code::rank_lost:
      case Code::rank_late:
      case Code::not_joined:
        return true;
      case Code::failed:
        if (!fault->met_in.call.empty()) return true;  // by a stopped rank that the launcher woke to end it
        [[fallthrough]];
      case Code::nccl:
      case Code::network:
        return nodes_lost;  // the first rank that notices a lost node may report these
      default:
        return false;
    }
  });
}

std::vector<std::string> settings_in(const std::string& text) {
  std::vector<std::string> settings, words;
  if (text.starts_with("@")) {
    if (!fs::exists(text.substr(1)))
      throw InputError("the settings file does not exist", "SET=" + text,
                       "pass the file's path, relative to the submission directory");
    for (const auto& line : lines_of(text.substr(1)))
      if (!line.empty() && line[0] != '#') words.push_back(line);
  } else {
    if (text.find_first_of("'\"\\") != std::string::npos)  // qsub -v turns quotes into backslashes
      throw InputError("SET cannot contain quotes or backslashes", "SET=" + base::printable(text),
                       "write one setting on each line of a file, and use SET=@FILE");
    words = words_in(text);
  }
  for (const auto& word : words) settings.insert(settings.end(), {"--set", word});
  return settings;
}

int run_job(const std::vector<std::string>& words, Signals& signals, const std::string& program) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // this process adopts what a launcher leaves
  const auto is_help = [](const std::string& word) { return word == "--help" || word == "-h"; };
  if (words.empty() || is_help(words[0]) || (words.size() > 1 && is_help(words[1]))) {
    output::print(
        "lockstep job: runs in a job script: starts ranks, forwards signals, restarts\n\n"
        "usage: lockstep job ACTION [arguments]\n\n"
        "actions:\n"
        "  train [CONFIG.yaml]  lockstep train, restarted if it lost ranks or stopped early\n"
        "  eval [RUN_FOLDER]    lockstep eval\n"
        "  bench [NAME]         lockstep bench\n"
        "  check [EXERCISE]     lockstep check, on this node\n"
        "  run PROGRAM          your own program on every rank\n\n"
        "further arguments go to that command or program:\n"
        "  lockstep job train configs/mnist.yaml --resume auto\n");
    return kDone;
  }
  if (const Words all = {"train", "eval", "bench", "check", "run"}; std::ranges::count(all, words[0]) == 0)
    throw InputError(format("unknown action '{}'", base::printable(words[0])), "lockstep job",
                     "use train, eval, bench, check or run");
  return Job(signals, program).run(words[0], {words.begin() + 1, words.end()});
}

}  // namespace lockstep::job
