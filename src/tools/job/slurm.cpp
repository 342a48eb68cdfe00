// A job under Slurm: its allocation, its requeue, and the release of lost nodes.
#include <algorithm>
#include <atomic>
#include <regex>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "tools/job/own_job.h"

namespace lockstep::job {
namespace {

using Clock = std::chrono::steady_clock;

class SlurmJob : public OwnJob {
 public:
  SlurmJob(Environment& environment, RunCommand run, std::chrono::milliseconds pause)
      : OwnJob(environment, std::move(run)), pause_(pause) {}

  bool is_slurm() const override { return true; }
  std::string id() const override { return get("SLURM_JOB_ID"); }

  Allocation allocation() override {
    // sbatch --export must not keep OMP_NUM_THREADS and the like from the ranks
    environment_["SLURM_EXPORT_ENV"] = "ALL";
    std::vector<std::string> names;
    if (get("SLURM_HET_SIZE", "1") == "1")
      names = base::split(
          base::trimmed(run({"scontrol", "show", "hostnames", get("SLURM_JOB_NODELIST")}).output), '\n');
    const auto here = run({"scontrol", "show", "node", get("SLURMD_NODENAME")}).output;
    return slurm_allocation(environment_, names,
                            threads_per_core(environment_, number_after(here, "CPUTot")));
  }

  int64_t restarts() override { return count(environment_, "SLURM_RESTART_COUNT", 0); }

  Times times() override {
    const auto fields = record();
    return {cluster::seconds_in(value(fields, "RunTime")),
            cluster::seconds_between(value(fields, "EligibleTime"), value(fields, "StartTime"))};
  }

  // Also of the starts before a requeue.
  double joules() override {
    const auto answer = run({"sacct", "--jobs=" + own_name(), "--duplicates", "--noheader", "--parsable2",
                             "--format=JobID,ConsumedEnergyRaw"});
    constexpr int64_t kMost = int64_t{1} << 50;  // Slurm writes 2^64 - 2 for "unknown"
    int64_t joules = 0;
    for (const auto& line : base::split(answer.output, '\n')) {
      const auto words = base::split(line, '|');
      if (words.size() != 2 || words[0].find('.') == std::string::npos) continue;
      if (const auto energy = base::number_in(words[1]).value_or(0); energy < kMost) joules += energy;
    }
    return static_cast<double>(joules);
  }

  // Only newer versions, and the accounting database, know the options that sbatch was given. Slurm joins the
  // words without quotes.
  std::string submit_line(const std::vector<std::string>& words) override {
    const auto fields = record();
    auto known = value(fields, "SubmitLine");
    if (known.empty()) {
      known = run({"sacct", "--jobs=" + id(), "--allocations", "--noheader", "--parsable2",
                   "--format=SubmitLine"})
                  .output;
      known = base::trimmed(known.substr(0, known.find('\n')));  // a line for each task or component
    }
    auto line = known.empty() ? value(fields, "Command") : known;
    if (line.empty() || line == "(null)") return "";  // a script from standard input
    const auto end = " " + base::join(words, " ");
    const bool has_words = !words.empty() && line.ends_with(end);
    if (has_words) line.resize(line.size() - end.size());
    if (known.empty()) line = "sbatch " + cluster::quoted(line);
    if (has_words) line += " " + cluster::quoted(words);
    const auto task = get("SLURM_ARRAY_TASK_ID");
    if (!task.empty() && line.starts_with("sbatch ")) {
      line = std::regex_replace(line, std::regex(" (--array[= ]|-a ?)[-0-9,:%]+(?= )"), "");  // all its tasks
      line.insert(6, " --array=" + task);
    }
    const auto folder = value(fields, "WorkDir");
    return folder.empty() ? line : format("cd {} && {}", cluster::quoted(folder), line);
  }

  // Slurm counts a requeue by an operator, a node failure and a pre-emption at once.
  bool restarts_itself() override { return count(record(true), "Restarts", 0) > restarts(); }

  // Without an answer a requeue could restart a job that a person has cancelled.
  std::optional<bool> was_cancelled(const StopSignal&) override {
    const auto fields = record(true);
    const auto state = value(fields, "JobState");
    if (state.empty()) return std::nullopt;
    if (state != "COMPLETING" && state != "CANCELLED") return false;
    const auto preempted = value(fields, "PreemptTime", "None");
    return value(fields, "Reason") != "TimeLimit" && (preempted == "None" || preempted == "Unknown");
  }

  std::optional<std::string> continue_run(const Environment&,
                                          const std::function<bool()>& is_cancelled) override {
    const auto answer =
        ask_again({"scontrol", "requeue", own_name()}, [&] { return restarts_itself() || is_cancelled(); });
    if (answer.good() || restarts_itself()) return "";
    log::warning("scontrol requeue failed: " + base::trimmed(answer.errors));
    return std::nullopt;
  }

  // Slurm sends the signal of --signal=B:USR1@120 at once to a job of at most those 120 s, or up to 60 s
  // more. A run stops in time without it, but a user's own program does not know when the job ends.
  std::optional<int64_t> seconds_to_own_warning() override {
    const auto fields = record();
    const auto limit = cluster::seconds_in(value(fields, "TimeLimit"));
    if (limit == 0 || limit > 180) return std::nullopt;
    return std::max<int64_t>(0, limit - limit / 5 - cluster::seconds_in(value(fields, "RunTime")));
  }

  int daemon_port() override {
    return static_cast<int>(number_after(ask_again({"scontrol", "show", "config"}).output, "SlurmdPort"));
  }

  std::optional<bool> reaches(const std::string& node) override {
    const auto answer =
        ask_again({"srun", format("--job-name={}", kStepName), "--overlap", "--mem=0", "--nodes=1",
                   "--ntasks=1", "--cpus-per-task=1", "--mpi=none", "--nodelist=" + node, "true"});
    if (!answer.good() && record().empty()) return std::nullopt;  // the controller is down
    return answer.good();
  }

  // A step may wait for its lost node, and hold resources that the next step needs. Other steps are the
  // user's.
  void end_steps() {
    const auto answer = run({"squeue", "--noheader", "--steps", "--jobs=" + own_name(), "--format=%i %j"});
    std::vector<std::string> words = {"scancel"};
    for (const auto& line : base::split(answer.output, '\n')) {
      const auto step = base::trimmed(line);
      const auto blank = std::min(step.find(' '), step.size());
      const auto name = base::trimmed(step.substr(blank));
      if (base::is_among(name, {kStepName, "orted", "prted", "hydra_*"}))
        words.push_back(step.substr(0, blank));
    }
    if (words.size() == 1) return;
    log::info("cancelling the job's steps: " + base::join(words, " "));
    run(words);
  }

  std::string keep_only(const Allocation& left, const std::vector<std::string>& lost) override {
    end_steps();
    // The step of a lost node may keep its memory for a while, and --overlap does not share memory.
    for (const char* name : {"SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU"}) environment_.erase(name);
    environment_["SLURM_MEM_PER_NODE"] = "0";
    if (lost.empty()) return "";
    std::vector<std::string> names, cpus, tasks;
    for (const auto& node : left.nodes) {
      names.push_back(node.name);
      cpus.push_back(format("{}", node.cpus));
      tasks.push_back(format("{}", node.tasks));
    }
    const auto set = [&](const std::vector<std::string>& variables, const std::string& text) {
      for (const auto& name : variables) environment_[name] = text;
    };
    set({"SLURM_JOB_NODELIST", "SLURM_NODELIST"}, base::join(names, ","));
    set({"SLURM_JOB_NUM_NODES", "SLURM_NNODES"}, format("{}", names.size()));
    set({"SLURM_JOB_CPUS_PER_NODE"}, base::join(cpus, ","));
    set({"SLURM_TASKS_PER_NODE"}, base::join(tasks, ","));
    if (!get("SLURM_NTASKS").empty())
      set({"SLURM_NTASKS", "SLURM_NPROCS"}, format("{}", sum_of(&Node::tasks, left)));
    if (!get("SLURM_GPUS").empty()) set({"SLURM_GPUS"}, format("{}", sum_of(&Node::gpus, left)));
    // Slurm ends a job when it notices that a node is down, unless the job has released it.
    const base::TemporaryFolder folder;  // scontrol writes two files into its working folder
    const auto answer = ask_again({"env", "-C", folder.path(), "scontrol", "update", "JobId=" + id(),
                                   "NodeList=" + base::join(names, ",")});
    if (answer.good()) return "";
    return format(
        "Slurm did not release {} ({}); without sbatch --no-kill it ends the job when it notices that a node "
        "is down",
        base::join(lost, ", "), base::printable(base::trimmed(answer.errors + answer.output)));
  }

 private:
  // sacct asks the database, the others the controller.
  base::Answer run(const std::vector<std::string>& words) const {
    const auto answer = OwnJob::run(words);
    if (answer.good() && words[0] != "sacct") down_since_ = Clock::time_point{};
    return answer;
  }

  static int64_t number_after(const std::string& text, const std::string& name) {
    std::smatch found;
    const bool is_there = std::regex_search(text, found, std::regex(name + " *= *([0-9]+)"));
    return is_there ? base::number_in(found[1].str()).value_or(0) : 0;
  }

  // Waits ten seconds for a controller that does not know its nodes yet, or a database that does not know the
  // job, and five minutes for a controller that is down: all commands together, until it answers one. Returns
  // the last answer if `is_over` before the next try.
  base::Answer ask_again(const std::vector<std::string>& words,
                         const std::function<bool()>& is_over = {}) const {
    const auto start = Clock::now();
    base::Answer answer;
    for (auto pause = pause_;; pause = std::min(2 * pause, 30 * pause_)) {
      if (is_over && is_over()) return answer;
      answer = run(words);
      const auto says = [&](const char* part) { return answer.errors.find(part) != std::string::npos; };
      const bool is_late = answer.end == base::Answer::late;
      const bool is_down = (is_late && words[0] != "srun") || says("Unable to contact");
      const bool is_busy = is_down || says("Unable to create step") || says("try again");
      Clock::time_point since{};
      if (!is_down && !is_late) down_since_ = since;
      if (!is_down || down_since_.compare_exchange_strong(since, start)) since = start;
      if (answer.good() || !is_busy || Clock::now() - since > (is_down ? 300 : 10) * pause_) return answer;
      if (pause == pause_)
        log::warning(format("trying again: {}\n{}", base::join(words, " "), base::trimmed(answer.errors)));
      std::this_thread::sleep_for(is_down ? pause : pause_);
    }
  }

  // This job's paragraph: the answer has one for each task of an array.
  Environment record(bool waits = false) const {
    Environment fields;
    bool is_ours = false;
    const std::vector<std::string> words = {"scontrol", "show", "job", id()};
    for (const auto& line : base::split((waits ? ask_again(words) : run(words)).output, '\n')) {
      const auto text = base::trimmed(line.substr(0, line.find(" JobName=")));  // which may be anything
      if (text.starts_with("JobId=")) is_ours = (text + " ").starts_with("JobId=" + id() + " ");
      if (!is_ours) continue;
      for (const char* name : {"Command", "WorkDir", "SubmitLine"})  // which may contain blanks
        if (text.starts_with(name + std::string("="))) fields[name] = text.substr(text.find('=') + 1);
      for (const auto& word : base::split(text, ' ')) {
        const auto sign = word.find('=');
        if (sign != std::string::npos) fields.emplace(word.substr(0, sign), word.substr(sign + 1));
      }
    }
    return fields;
  }

  // A task of an array as 7_1: the id of the last task is that of the array.
  std::string own_name() const {
    const auto fields = record();
    const auto told = [&](const char* field, const char* variable) {
      return fields.empty() ? get(variable) : value(fields, field);
    };
    const auto array = told("ArrayJobId", "SLURM_ARRAY_JOB_ID");
    return array.empty() ? id() : array + "_" + told("ArrayTaskId", "SLURM_ARRAY_TASK_ID");
  }

  std::chrono::milliseconds pause_;
  mutable std::atomic<Clock::time_point> down_since_{};
};

}  // namespace

std::unique_ptr<OwnJob> make_slurm_job(Environment& environment, RunCommand run,
                                       std::chrono::milliseconds pause) {
  return std::make_unique<SlurmJob>(environment, std::move(run), pause);
}

}  // namespace lockstep::job
