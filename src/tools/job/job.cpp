#include "tools/job/job.h"

#include <netdb.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
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
#include <set>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/files/checkpoint_files.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "tools/job/scheduler.h"
#include "trainer/config/config_text.h"
#include "trainer/config/yaml.h"
#include "trainer/run_folder/status.h"

namespace lockstep::job {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr int kStillRunning = run_folder::kRunning;

std::vector<std::string> lines_of(const std::string& file) {
  std::vector<std::string> lines;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// train.as_world as the config and the last --set have it. The tables against which a whole config is checked
// come with the modules that use libtorch.
int64_t as_world_in(const config::ConfigText& config, const std::vector<std::string>& arguments) {
  std::string found;
  const auto find = [](const config::YamlNode& map, const char* key) -> const config::YamlNode* {
    for (const auto& [name, node] : map.entries) {
      if (name->text == key) return node.get();
    }
    return nullptr;
  };
  const auto root = config::parse_yaml(config.text, config.name);
  if (const auto* train = find(*root, "train")) {
    if (const auto* node = find(*train, "as_world")) found = node->text;
  }
  constexpr std::string_view kSet = "train.as_world=";
  for (const auto& word : arguments) {
    const auto at = word.starts_with("--set=") ? word.substr(6) : word;
    if (at.starts_with(kSet)) found = at.substr(kSet.size());
  }
  return std::max<int64_t>(0, base::number_in(found).value_or(0));
}

// ---- which nodes answer ----

// Those of the hosts whose kernels do not answer at the port within the time, asked all at once. A refusal is
// an answer, and a name that is unknown here says nothing of its node.
std::set<std::string> silent_hosts(const std::vector<std::string>& hosts, int port,
                                   std::chrono::milliseconds limit) {
  std::set<std::string> silent;
  std::map<std::string, base::Descriptor> waiting;
  for (const auto& host : hosts) {
    addrinfo wanted{}, *found = nullptr;
    wanted.ai_socktype = SOCK_STREAM;
    if (::getaddrinfo(host.c_str(), format("{}", port).c_str(), &wanted, &found) != 0) continue;
    base::Descriptor socket(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const bool has_answered = !socket || ::connect(socket.number(), found->ai_addr, found->ai_addrlen) == 0 ||
                              errno == ECONNREFUSED;
    if (!has_answered && errno == EINPROGRESS)
      waiting.emplace(host, std::move(socket));
    else if (!has_answered)
      silent.insert(host);
    ::freeaddrinfo(found);
  }
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!waiting.empty() && std::chrono::steady_clock::now() < until) {
    std::vector<pollfd> ready;
    for (const auto& [host, socket] : waiting) ready.push_back({socket.number(), POLLOUT, 0});
    ::poll(ready.data(), ready.size(), 100);
    size_t i = 0;
    std::erase_if(waiting, [&](const auto& entry) {
      if (ready[i++].revents == 0) return false;
      int error = 0;
      socklen_t size = sizeof error;
      ::getsockopt(entry.second.number(), SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0 && error != ECONNREFUSED) silent.insert(entry.first);
      return true;
    });
  }
  for (const auto& [host, socket] : waiting) silent.insert(host);
  return silent;
}

// ---- what lockstep submit reads of a job: LOCKSTEP_RECORD names a file that gets a line for each event ----

class Record {
 public:
  Record(const Environment& environment, std::string job) : job_(std::move(job)) {
    path_ = value(environment, "LOCKSTEP_RECORD");
    if (path_.empty() || value(environment, "LOCKSTEP_RECORD_TASKS").empty()) return;
    path_ += "." + value(environment, "SLURM_ARRAY_TASK_ID", value(environment, "PBS_ARRAY_INDEX", "0"));
  }

  void add(const std::string& event, std::string words = "") {
    if (path_.empty()) return;
    std::ranges::replace(words, '\n', ' ');
    std::ofstream(path_, std::ios::app)
        << event << ' ' << job_ << (words.empty() ? "" : " ") << words << '\n';
  }

 private:
  std::string path_, job_;
};

// ---- one job ----

// InputError where this process is in no job.
std::unique_ptr<Scheduler> this_jobs_scheduler(Environment& environment, RunCommand run) {
  if (!value(environment, "SLURM_JOB_ID").empty()) return make_slurm(environment, std::move(run));
  if (!value(environment, "PBS_JOBID").empty() && !value(environment, "PBS_NODEFILE").empty())
    return make_pbs(environment, std::move(run));
  throw InputError("this process is not in a job: neither SLURM_JOB_ID nor PBS_NODEFILE is set",
                   "lockstep job", "submit a job script with sbatch or qsub");
}

class Job {
 public:
  Job(std::vector<std::string> words, Signals& signals, std::string program)
      : words_(std::move(words)),
        signals_(signals),
        program_(std::move(program)),
        run_command_(cluster::real_commands(30s)),
        scheduler_(this_jobs_scheduler(environment_, run_command_)),
        record_(environment_, scheduler_->job_id()) {
    if (words_.size() > 1 && words_[1] == "--warned") {
      words_.erase(words_.begin() + 1);
      is_warned_ = true;
    }
  }

  int run() {
    const auto& command = words_[0];
    const std::vector<std::string> rest(words_.begin() + 1, words_.end());
    if (command == "train") return recorded([&] { return train(rest); });
    if (command == "eval") return eval(rest);
    if (command == "bench") return bench(rest);
    if (command == "run") return own_program(rest);
    throw InputError(format("there is no 'lockstep job {}'", base::printable(command)), "lockstep job",
                     "it is one of train, eval, bench, check and run");
  }

 private:
  // The end of the script is the end of the job, unless the scheduler starts it again.
  int recorded(const std::function<int()>& work) {
    record_.add("begin");
    int status = kFailed;
    try {
      status = work();
    } catch (const std::exception& error) {
      status = exit_status(error);
      record_.add("end", format("{} {}", status, run_));
      throw;
    }
    if (!starts_again_) record_.add("end", format("{} {}", status, run_));
    return status;
  }

  void prepare(bool is_training) {
    allocation_ = scheduler_->allocation();
    auto& nodes = allocation_.nodes;
    if (gpus_are_amd(environment_, nodes.front().gpus)) {
      say("warning: this node's GPUs are AMD's, which lockstep cannot use: it trains on the CPU");
      for (auto& node : nodes) node.gpus = 0;
    }
    if (const auto home = base::home_folder(); !home.empty())
      environment_["LOCKSTEP_HOME"] = fs::absolute(home).string();
    lay_out_ranks(is_training);
    const auto restart = std::max(scheduler_->restarts(), count(environment_, "LOCKSTEP_RESTART", 0));
    say(format("job {}, {} ranks on {} node(s), {} core(s) a rank, restart {}", scheduler_->job_id(),
               layout_.ranks, layout_.nodes, layout_.cores_per_rank, restart));
    say(format("home {}, program {}", value(environment_, "LOCKSTEP_HOME"), program_));
    say("start: " + base::join(launcher_.words, " "));
  }

  void lay_out_ranks(bool is_training) {
    layout_ = lay_out(allocation_, environment_);
    for (const auto& warning : layout_.warnings) say("warning: " + warning);
    launcher_ = choose_launcher({*scheduler_, allocation_, layout_, is_training, relaunches_,
                                 base::home_folder() + "/job_scripts/pbs_agent.sh"},
                                environment_, run_command_);
  }

  RanksEnd run_ranks(const std::vector<std::string>& words, bool is_training = false) {
    RanksPlan plan{.launcher = launcher_, .words = words, .environment = environment_};
    if (is_training) {
      plan.run_file = run_file_;
      plan.errors_file = environment_["LOCKSTEP_ERRORS"];
      plan.survives_losses = as_world_ > 0;
    } else {
      plan.environment.erase("LOCKSTEP_RUN_FILE");  // another job's
    }
    plan.probe_nodes = [this] { return silent_nodes(); };
    if (std::exchange(is_warned_, false)) ::raise(SIGUSR1);
    return job::run_ranks(*scheduler_, signals_, stop_, std::move(plan));
  }

  // ---- train ----

  int train(const std::vector<std::string>& given) {
    read_arguments(given);
    max_restarts_ = count(environment_, "LOCKSTEP_MAX_RESTARTS", 10);
    max_relaunches_ = count(environment_, "LOCKSTEP_MAX_RELAUNCHES", 3);
    node_timeout_ = std::chrono::seconds(count(environment_, "LOCKSTEP_NODE_TIMEOUT", 3, 1));
    chain_ = value(environment_, "LOCKSTEP_CHAIN");
    check_report();
    choose_files();
    prepare(true);
    read_as_world();
    std::string resume = "auto";
    if (scheduler_->restarts() > 0) {
      if (const auto status = take_up_own_run(resume)) return *status;
    } else if (!chain_.empty()) {
      if (const auto status = end_of_chain()) return *status;
    }
    int status = train_once(resume);
    while (relaunch(status)) status = train_once(run_.empty() ? resume : run_);
    for (int i = 0; i <= relaunches_; ++i) fs::remove(errors_file(i), none_);
    if (!run_.empty() && status != kStillRunning) make_report();
    return finish(status);
  }

  void read_arguments(const std::vector<std::string>& given) {
    auto words = given;
    config_ = value(environment_, "CONFIG", "configs/mnist.yaml");
    if (!words.empty() && !words[0].starts_with("-")) {
      config_ = words[0];
      words.erase(words.begin());
    }
    const auto set = value(environment_, "SET");
    const bool is_fresh = value(environment_, "LOCKSTEP_CARRIED").empty();
    if (!scheduler_->is_slurm() && is_fresh && !set.starts_with("@") && set.find('\\') != std::string::npos)
      throw InputError("qsub -v turns quotes into backslashes", "SET=" + set,
                       "write one setting on each line of a file, and use SET=@FILE");
    arguments_ = settings_in(set);
    arguments_.insert(arguments_.end(), words.begin(), words.end());
  }

  // The job's files are hidden in the folder of submission: all nodes see it, and a job that starts again
  // finds them.
  std::string own_file(const std::string& kind) const {
    return (fs::current_path() / format(".lockstep-{}-{}", kind, scheduler_->file_word())).string();
  }
  std::string errors_file(int attempt) const { return own_file(format("errors{}", attempt)); }

  void choose_files() {
    kept_run_file_ = chain_.empty() ? value(environment_, "LOCKSTEP_RUN_FILE") : chain_;
    run_file_ = kept_run_file_.empty() ? own_file("run") : fs::absolute(kept_run_file_).string();
    environment_["LOCKSTEP_RUN_FILE"] = run_file_;
    record_.add("file", run_file_);
    const auto errors = value(environment_, "LOCKSTEP_ERRORS");
    // a descriptor, as a program that starts lockstep passes one, does not reach the ranks
    has_own_errors_ = errors.find_first_not_of("0123456789") == std::string::npos;
    if (has_own_errors_) environment_["LOCKSTEP_ERRORS"] = errors_file(0);
    remove_old_files();
  }

  // Killed jobs leave theirs.
  static void remove_old_files() {
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(fs::current_path(), failed)) {
      const auto name = entry.path().filename().string();
      const auto age = fs::file_time_type::clock::now() - entry.last_write_time(failed);
      if (name.starts_with(".lockstep-") && !failed && age > 24h * 30) fs::remove(entry.path(), failed);
    }
  }

  // How many ranks the run has, whatever processes there are; 0 where a lost rank ends it.
  void read_as_world() {
    as_world_ = 0;
    if (max_relaunches_ == 0 || allocation_.components > 1) return;
    try {
      const auto text = config::read_config_text(run_.empty() ? config_ : run_ + "/config.yaml");
      as_world_ = as_world_in(text, run_.empty() ? arguments_ : std::vector<std::string>());
    } catch (const Error&) {  // the ranks say what is wrong with it
      return;
    }
    if (as_world_ > 0) environment_["LOCKSTEP_SILENCE"] = value(environment_, "LOCKSTEP_SILENCE", "5");
  }

  int train_once(const std::string& resume) {
    if (has_own_errors_) environment_["LOCKSTEP_ERRORS"] = errors_file(relaunches_);
    errors_before_ = lines_of(environment_["LOCKSTEP_ERRORS"]).size();
    base::replace_file(run_file_, "");
    std::vector<std::string> words = {program_, "train", config_, "--resume", resume};
    words.insert(words.end(), arguments_.begin(), arguments_.end());
    end_ = run_ranks(words, true);
    const auto folder = folder_in(run_file_);
    // without a run's folder: what all ranks refuse before there is one is wrong input
    if (folder.empty()) return end_.status == 0 || end_.status == kBadInput ? kBadInput : kFailed;
    run_ = folder;
    return last_status();
  }

  // Launchers change exit statuses, so the run's folder says how it ended. A launcher may leave before its
  // ranks.
  int last_status() const {
    const auto until = std::chrono::steady_clock::now() + 10s;
    auto status = status_of_run(run_);
    while (status == kStillRunning && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(200ms);
      status = status_of_run(run_);
    }
    try {
      output::print(run_folder::job_status(run_).text + "\n");
    } catch (const Error& error) {
      log::warning(error.what());
    }
    return status;
  }

  // A job that its scheduler started again goes on with its own run.
  std::optional<int> take_up_own_run(std::string& resume) {
    const auto next = base::first_line(own_file("next"));
    if (!next.empty() && !scheduler_->is_gone(next)) {
      say(format("job {} goes on with the run of this one: nothing to do here", next));
      return kStoppedEarly;
    }
    fs::remove(own_file("next"), none_);
    const auto folder = folder_in(run_file_);
    if (folder.empty() || !fs::is_directory(folder, none_)) return std::nullopt;
    const auto status = status_of_run(folder);
    if (status == kDone) say("the run is done: nothing left to do");
    if (status == run_folder::kStoppedOnRequest)
      say("the run was stopped on request: it stays stopped; submit again to go on");
    if (status == kDone || status == run_folder::kStoppedOnRequest) return status;
    resume = folder;
    return std::nullopt;
  }

  // A link of a chain has nothing to do where the run has ended.
  std::optional<int> end_of_chain() {
    std::error_code none;
    if (!fs::exists(run_file_, none)) {
      if (value(environment_, "LOCKSTEP_LINK", "1") == "1") return std::nullopt;
      say("the chain is over: a link before was done, failed or was cancelled");
      return kFailed;
    }
    const auto folder = folder_in(run_file_);
    const auto status = folder.empty() ? kFailed : status_of_run(folder);
    if (status == kStoppedEarly) return std::nullopt;
    if (status == kDone)
      say("the run is done: nothing left for this link");
    else if (folder.empty())
      say("the link before came to no run: this link does not try again");
    else if (status == kStillRunning)
      say("the run is still running: this link does not take it over");
    else if (status == run_folder::kStoppedOnRequest)
      say("the run was stopped on request: this link does not go on");
    else
      say("the run failed: this link does not try it again");
    return status == kDone ? kDone : kFailed;
  }

  void note_signals() {
    for (const int signal : signals_.take()) note_signal(signal, stop_);
  }

  int finish(int status) {
    note_signals();  // one that came after the ranks' end decides whether the job goes on
    if (status == kStillRunning)
      say("the launcher has left, and its run says that it is still running: look after its processes");
    if (status == run_folder::kStoppedOnRequest)
      say("stopped on request: it stays stopped; submit again to go on");
    if (status == kStoppedEarly) return go_on();
    forget_run_file();
    return status;
  }

  // Not one that somebody named, and not where the scheduler may start this job again.
  void forget_run_file() {
    if (kept_run_file_.empty() && !scheduler_->may_start_again(stop_)) fs::remove(run_file_, none_);
  }

  int go_on() {
    const auto restarts = std::max(scheduler_->restarts(), count(environment_, "LOCKSTEP_RESTART", 0));
    if (scheduler_->starts_again()) {
      say("stopped early; Slurm starts this job again by itself");
      return start_again(kStoppedEarly);
    }
    if (scheduler_->was_cancelled(stop_)) {
      say(scheduler_->may_start_again(stop_)
              ? "told to end, with a checkpoint: after a qdel it stays stopped (submit again to go on); "
                "after a qrerun "
                "PBS starts it again by itself"
              : "cancelled, with a checkpoint: it stays stopped; submit again to go on");
      if (!chain_.empty()) fs::remove(run_file_, none_);
      forget_run_file();
      return kStoppedEarly;
    }
    if (!chain_.empty()) {
      say("stopped early; the next link of the chain goes on");
      return kStoppedEarly;
    }
    if (restarts >= max_restarts_) {
      say(format(
          "stopped early, and {} restarts are enough (LOCKSTEP_MAX_RESTARTS={}); submit again to go on",
          restarts, max_restarts_));
      forget_run_file();
      return kStoppedEarly;
    }
    say(format("stopped early; restart {} of at most {}", restarts + 1, max_restarts_));
    if (scheduler_->is_slurm()) record_.add("again");
    const auto continued = scheduler_->go_on(settings_of_lockstep());
    if (continued.goes_on && continued.next.empty()) return start_again(kDone, true);
    if (continued.goes_on) {
      say(format("job {} goes on", continued.next));
      record_.add("next", continued.next);
      if (scheduler_->may_start_again(stop_)) base::replace_file(own_file("next"), continued.next + "\n");
      forget_run_file();
      return kStoppedEarly;  // not 0: a job that waits for this one's success must not start yet
    }
    if (scheduler_->is_slurm()) record_.add("begin");
    say("this site does not let a job submit a job; use lockstep submit --chain, or submit again to go on");
    return kStoppedEarly;
  }

  int start_again(int status, bool is_recorded = false) {
    if (!is_recorded) record_.add("again");
    starts_again_ = true;
    return status;
  }

  Environment settings_of_lockstep() const {
    Environment all;
    for (const auto& [name, setting] : environment_) {
      const bool is_own = name.starts_with("LOCKSTEP_") || name == "CONFIG" || name == "SET";
      if (is_own && !setting.empty()) all[name] = setting;
    }
    for (const char* name : {"LOCKSTEP_ERRORS", "LOCKSTEP_SILENCE", "LOCKSTEP_SCRIPT"}) all.erase(name);
    if (kept_run_file_.empty()) all.erase("LOCKSTEP_RUN_FILE");
    all["LOCKSTEP_CARRIED"] = "yes";
    return all;
  }

  // ---- lost ranks ----

  std::vector<std::string> errors() const {
    auto lines = lines_of(environment_.at("LOCKSTEP_ERRORS"));
    lines.erase(lines.begin(),
                lines.begin() + static_cast<std::ptrdiff_t>(std::min(errors_before_, lines.size())));
    return lines;
  }

  static bool is_here(const std::string& node) {
    const auto host = this_host();
    return node.substr(0, node.find('.')) == host.substr(0, host.find('.'));
  }

  bool is_this_node(const std::string& node) const {
    return node == value(environment_, "SLURMD_NODENAME") || is_here(node);
  }

  std::vector<std::string> other_nodes() const {
    std::vector<std::string> names;
    for (const auto& node : allocation_.nodes) {
      if (!node.name.empty() && !is_this_node(node.name)) names.push_back(node.name);
    }
    return names;
  }

  std::set<std::string> silent_nodes() {
    const auto port = scheduler_->daemon_port();
    return port == 0 ? std::set<std::string>() : silent_hosts(other_nodes(), port, node_timeout_);
  }

  // A node is lost where its kernel or the scheduler's daemon on it does not answer.
  std::vector<std::string> find_lost_nodes() {
    const auto silent = end_.nodes_were_probed ? end_.silent_nodes : silent_nodes();
    const auto names = other_nodes();
    std::vector<std::future<bool>> answers;  // all at once: each may take 30 s
    for (const auto& name : names)
      answers.push_back(std::async(std::launch::async,
                                   [&] { return !silent.contains(name) && scheduler_->reaches(name); }));
    std::vector<std::string> lost;
    for (size_t i = 0; i < names.size(); ++i)
      if (!answers[i].get()) lost.push_back(names[i]);
    return lost;
  }

  bool relaunch(int status) {
    if ((status != kFailed && status != kStillRunning) || stop_.signal != 0) return false;
    if (!run_.empty()) read_as_world();
    if (max_relaunches_ == 0 || allocation_.components > 1) return false;
    if (as_world_ == 0) {
      if (layout_.ranks > 1 && !end_.out_of_memory && !errors().empty() &&
          only_ranks_were_lost(errors(), false))
        say(ranks_at_fault() +
            ": with train.as_world the ranks would have been started again on the nodes that are left "
            "(docs/how-to/elastic.md)");
      return false;
    }
    const auto lost = find_lost_nodes();
    const bool nothing_known = run_.empty() && lost.empty() && errors().empty();
    if (nothing_known || !only_ranks_were_lost(errors(), !lost.empty())) return false;
    note_signals();
    if (stop_.signal != 0 || is_enough(lost)) return false;
    ++relaunches_;
    leave_out(lost);
    return true;
  }

  std::string what_is_lost(const std::vector<std::string>& lost) const {
    if (lost.empty()) return ranks_at_fault();
    return lost.size() == 1 ? format("node {} does not answer", lost[0])
                            : format("nodes {} do not answer", base::join(lost, ", "));
  }

  std::string ranks_at_fault() const {
    for (const auto& line : errors()) {
      const auto fault = base::fault_in(line);
      if (!fault || fault->ranks.empty()) continue;
      std::vector<std::string> ranks;
      for (const int rank : fault->ranks) ranks.push_back(format("{}", rank));
      return ranks.size() == 1 ? format("rank {} was lost", ranks[0])
                               : format("ranks {} were lost", base::join(ranks, ", "));
    }
    return "the ranks were lost";
  }

  int64_t last_step() const {
    int64_t step = 0;
    for (const auto& line : lines_of(run_ + "/metrics.jsonl")) {
      const auto event = base::parse_json(line);
      if (event.is_object() && event.value("event", "") == "step") step = event.value("step", step);
    }
    return step;
  }

  // A step that ends a rank each time would do so on any node.
  bool is_enough(const std::vector<std::string>& lost) {
    const auto step = run_.empty() ? 0 : last_step();
    const auto before = std::exchange(lost_at_, std::nullopt);
    // an attempt whose ranks never began does not count
    const bool has_begun = !folder_in(run_file_).empty() || !errors().empty();
    if (lost.empty() && has_begun) lost_at_ = step;
    if (relaunches_ >= max_relaunches_) {
      say(format("{}, and {} relaunches are enough (LOCKSTEP_MAX_RELAUNCHES={}); submit again to go on",
                 what_is_lost(lost), relaunches_, max_relaunches_));
      return true;
    }
    if (lost_at_ && lost_at_ == before) {
      say(format(
          "{} twice after step {}, and no node was lost: the same would happen again, so the run ends here",
          what_is_lost(lost), step));
      return true;
    }
    return false;
  }

  void leave_out(const std::vector<std::string>& lost) {
    std::erase_if(allocation_.nodes,
                  [&](const Node& node) { return std::ranges::count(lost, node.name) > 0; });
    const auto nodes = allocation_.nodes.size();
    const auto newest = run_.empty() ? "" : base::newest_by_name(run_ + "/checkpoints");
    const auto saved = base::step_in_name(fs::path(newest).filename().string());
    say(format("{}; going on with {}{} node{} {} (relaunch {} of at most {})", what_is_lost(lost),
               lost.empty() ? "the same " : "", nodes, nodes == 1 ? "" : "s",
               saved ? format("after step {}", *saved) : "from the first step", relaunches_,
               max_relaunches_));
    record_.add("relaunch",
                format("{}{}{}", relaunches_, lost.empty() ? "" : " without ", base::join(lost, " ")));
    if (const auto warning = scheduler_->keep_only(allocation_, lost); !warning.empty())
      say("warning: " + warning);
    end_leftovers();
    lay_out_ranks(true);
    say("start: " + base::join(launcher_.words, " "));
  }

  // ---- the rest ----

  void check_report() const {
    const auto wanted = value(environment_, "LOCKSTEP_REPORT");
    if (!wanted.empty() && wanted != "leave")
      throw InputError(format("LOCKSTEP_REPORT must be leave (got {})", base::printable(wanted)),
                       "LOCKSTEP_REPORT");
  }

  void make_report() {
    if (value(environment_, "LOCKSTEP_REPORT").empty()) return;
    const auto page = run_ + "/report.html";
    const auto answer = base::ask({program_, "report", run_, "--out", page}, 2min);
    say(answer.good() ? "the report: " + page : format("warning: no report of {} could be made", run_));
  }

  int eval(std::vector<std::string> given) {
    auto run = given.empty() ? folder_in(value(environment_, "LOCKSTEP_RUN_FILE")) : given[0];
    if (!given.empty()) given.erase(given.begin());
    const auto config = base::find_path(run + "/config.yaml");
    if (run.empty() || !fs::exists(config, none_))
      throw InputError(run.empty() ? "no run was named" : "not a run folder (it has no config.yaml)", run,
                       "name a run's folder");
    prepare(false);
    std::vector<std::string> words = {program_, "eval", run + "/config.yaml", "--checkpoint", run};
    words.insert(words.end(), given.begin(), given.end());
    return run_ranks(words).status;
  }

  int bench(std::vector<std::string> given) {
    if (given.empty()) given = split_words(value(environment_, "BENCH", "allreduce"));
    prepare(false);
    if (given[0] == "dp-vs-ddp") launcher_ = {{"env"}};  // it starts its own ranks, on this node
    std::vector<std::string> words = {program_, "bench"};
    words.insert(words.end(), given.begin(), given.end());
    return run_ranks(words).status;
  }

  // A program of the user's own on every rank.
  int own_program(std::vector<std::string> given) {
    const auto name = given.empty() ? "" : given[0];
    if (::access(name.c_str(), X_OK) != 0 || fs::is_directory(name, none_))
      throw InputError(fs::exists(name, none_) ? "not a program that can be run" : "no such program",
                       (value(environment_, "OWN_PROGRAM") == name ? "OWN_PROGRAM=" : "") + name,
                       "name a program, from the folder of submission");
    given[0] = fs::absolute(given[0]).string();
    prepare(false);
    say("your program: " + given[0]);
    return run_ranks(given).status;
  }

  static Environment current_environment() {
    Environment all;
    for (char** entry = environ; *entry; ++entry) {
      const std::string text = *entry;
      if (const auto sign = text.find('='); sign != std::string::npos)
        all[text.substr(0, sign)] = text.substr(sign + 1);
    }
    return all;
  }

  std::vector<std::string> words_;
  Signals& signals_;
  std::string program_;
  Environment environment_ = current_environment();
  RunCommand run_command_;
  std::unique_ptr<Scheduler> scheduler_;
  Record record_;
  StopSignal stop_;
  Allocation allocation_;
  Layout layout_;
  Launcher launcher_;
  std::string config_, chain_, kept_run_file_, run_file_, run_;
  std::vector<std::string> arguments_;
  bool has_own_errors_ = false, starts_again_ = false, is_warned_ = false;
  int64_t max_restarts_ = 10, max_relaunches_ = 3, as_world_ = 0;
  std::chrono::milliseconds node_timeout_{3000};
  size_t errors_before_ = 0;
  RanksEnd end_;
  int relaunches_ = 0;
  std::optional<int64_t> lost_at_;
  std::error_code none_;
};

}  // namespace

bool only_ranks_were_lost(const std::vector<std::string>& errors, bool nodes_lost) {
  return std::ranges::all_of(errors, [&](const std::string& line) {
    const auto fault = base::fault_in(line);
    if (!fault) return true;  // half a line of a rank that was killed
    switch (fault->code) {
      case Code::rank_lost:
      case Code::rank_late:
      case Code::not_joined:
      case Code::no_memory:
        return true;
      case Code::failed:
      case Code::nccl:
      case Code::network:
        return nodes_lost;  // what a node's end looks like to the rank that meets it first
      default:
        return false;
    }
  });
}

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool is_word = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote) {
      if (c == quote)
        quote = 0;
      else
        word += c;
    } else if (c == '\'' || c == '"') {
      quote = c, is_word = true;
    } else if (c == '\\' && i + 1 < text.size()) {
      word += text[++i], is_word = true;
    } else if (std::isspace(static_cast<unsigned char>(c))) {
      if (is_word) words.push_back(word);
      word.clear(), is_word = false;
    } else {
      word += c, is_word = true;
    }
  }
  if (quote) throw InputError("a quote is not closed: " + base::printable(text, 200));
  if (is_word) words.push_back(word);
  return words;
}

std::vector<std::string> settings_in(const std::string& text) {
  std::vector<std::string> settings, words;
  if (text.starts_with("@")) {
    const auto file = text.substr(1);
    if (!fs::exists(file))
      throw InputError("the file of settings does not exist", "SET=" + text,
                       "give the file's path from the folder of submission");
    for (const auto& line : lines_of(file)) {
      if (!line.empty() && line[0] != '#') words.push_back(line);
    }
  } else {
    words = split_words(text);
  }
  for (const auto& word : words) settings.insert(settings.end(), {"--set", word});
  return settings;
}

int run_job(const std::vector<std::string>& words, Signals& signals, const std::string& program) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // what a launcher leaves behind stays below this process
  if (words.empty() || words[0] == "--help" || words[0] == "-h") {
    output::print(
        "usage: lockstep job train|eval|bench|check|run [arguments]\n\n"
        "What a job script runs: starts the ranks, forwards signals, restarts what was lost or stopped "
        "early.\n\n"
        "  train [CONFIG.yaml] [arguments of lockstep train]\n"
        "  eval RUN_FOLDER [arguments of lockstep eval]\n"
        "  bench [NAME] [arguments of lockstep bench]\n"
        "  check [EXERCISE]             an exercise of the course, on this node\n"
        "  run PROGRAM [arguments]      a program of your own on every rank\n");
    return kDone;
  }
  if (words[0] == "check") {  // it starts its own ranks, on this node
    std::vector<char*> command = {const_cast<char*>(program.c_str())};
    for (const auto& word : words) command.push_back(const_cast<char*>(word.c_str()));
    command.push_back(nullptr);
    signals.release();
    ::execv(program.c_str(), command.data());
    throw InputError(std::string("the program cannot be started: ") + std::strerror(errno), program);
  }
  return Job(words, signals, program).run();
}

}  // namespace lockstep::job
