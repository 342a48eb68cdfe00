// A job under Slurm: what it was given, how it is requeued, and how it gives up lost nodes.
#include <algorithm>
#include <numeric>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "tools/job/scheduler.h"

namespace lockstep::job {
namespace {

class Slurm : public Scheduler {
 public:
  using Scheduler::Scheduler;

  bool is_slurm() const override { return true; }
  std::string job_id() const override { return get("SLURM_JOB_ID"); }
  std::string file_word() const override {
    const auto cluster = get("SLURM_CLUSTER_NAME");
    return cluster.empty() ? job_id() : cluster + "." + job_id();
  }

  Allocation allocation() override {
    // sbatch --export restricts the environment of this process; its ranks need what it sets
    environment_["SLURM_EXPORT_ENV"] = "ALL";
    std::vector<std::string> names;
    if (get("SLURM_HET_SIZE", "1") == "1") names = node_names();
    const auto here = run({"scontrol", "show", "node", get("SLURMD_NODENAME")}).output;
    const auto cpus = number_after(here, "CPUTot=");
    return slurm_allocation(environment_, names, threads_per_core(environment_, cpus));
  }

  int64_t restarts() override { return count(environment_, "SLURM_RESTART_COUNT", 0); }

  // A requeue by an operator, a node's failure and a pre-emption count at once.
  bool starts_again() override {
    const auto fields = job_record();
    return count(fields, "Restarts", 0) > restarts();
  }

  bool was_cancelled(const StopSignal&) override {
    const auto fields = job_record();
    const auto state = value(fields, "JobState");
    if (state != "COMPLETING" && state != "CANCELLED") return false;
    const auto preempted = value(fields, "PreemptTime", "None");
    return value(fields, "Reason") != "TimeLimit" && (preempted == "None" || preempted == "Unknown");
  }

  bool may_start_again(const StopSignal&) override { return false; }

  Continuation go_on(const Environment&) override {
    const auto answer = run({"scontrol", "requeue", own_name()});
    if (answer.good() || starts_again()) return {.goes_on = true};
    log::warning("scontrol requeue was refused: " + base::trimmed(answer.errors));
    return {};
  }

  // Slurm sends the signal of --signal=B:USR1@120 at once to a job of at most those 120 s, or 60 s more. Such
  // a job stops when a fifth of its time is left.
  int64_t early_by() override {
    const auto answer = run({"squeue", "--noheader", "--jobs=" + job_id(), "--format=%A %L %l"});
    for (const auto& line : base::split(answer.output, '\n')) {
      const auto words = base::split(base::trimmed(line), ' ');
      if (words.size() < 3 || words[0] != job_id()) continue;
      const auto left = cluster::seconds_in(words[1]), limit = cluster::seconds_in(words[2]);
      return limit > 0 && limit <= 180 ? std::max<int64_t>(0, left - limit / 5) : 0;
    }
    return 0;
  }

  int daemon_port() override {
    if (port_ < 0)
      port_ = static_cast<int>(number_after(run({"scontrol", "show", "config"}).output, "SlurmdPort"));
    return port_;
  }

  bool reaches(const std::string& node) override {
    return run({"srun", "--overlap", "--mem=0", "--nodes=1", "--ntasks=1", "--cpus-per-task=1", "--mpi=none",
                "--nodelist=" + node, "true"})
        .good();
  }

  // A step may wait for its lost node, and hold what the next step needs.
  void end_steps() override {
    const auto answer = run({"squeue", "--noheader", "--steps", "--jobs=" + job_id(), "--format=%i"});
    std::vector<std::string> words = {"scancel"};
    for (const auto& line : base::split(answer.output, '\n')) {
      const auto step = base::trimmed(line);
      if (!step.empty() && std::isdigit(static_cast<unsigned char>(step.back()))) words.push_back(step);
    }
    if (words.size() == 1) return;
    log::info("cancelling the job's steps: " + base::join(words, " "));
    run(words);
  }

  std::string keep_only(const Allocation& left, const std::vector<std::string>& lost) override {
    end_steps();
    // The step of a lost node may hold its memory a while longer, and --overlap does not share memory.
    for (const char* name : {"SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU"}) environment_.erase(name);
    environment_["SLURM_MEM_PER_NODE"] = "0";
    if (lost.empty()) return "";
    std::vector<std::string> names, cpus, tasks;
    int64_t all_tasks = 0;
    for (const auto& node : left.nodes) {
      names.push_back(node.name);
      cpus.push_back(format("{}", node.cpus));
      tasks.push_back(format("{}", node.tasks));
      all_tasks += node.tasks;
    }
    const auto set = [&](const std::vector<std::string>& variables, const std::string& text) {
      for (const auto& name : variables) environment_[name] = text;
    };
    set({"SLURM_JOB_NODELIST", "SLURM_NODELIST"}, base::join(names, ","));
    set({"SLURM_JOB_NUM_NODES", "SLURM_NNODES"}, format("{}", names.size()));
    set({"SLURM_JOB_CPUS_PER_NODE"}, base::join(cpus, ","));
    set({"SLURM_TASKS_PER_NODE"}, base::join(tasks, ","));
    if (!get("SLURM_NTASKS").empty()) set({"SLURM_NTASKS", "SLURM_NPROCS"}, format("{}", all_tasks));
    if (!get("SLURM_GPUS").empty()) {
      const auto gpus = std::accumulate(left.nodes.begin(), left.nodes.end(), int64_t{0},
                                        [](int64_t sum, const Node& node) { return sum + node.gpus; });
      set({"SLURM_GPUS"}, format("{}", gpus));
    }
    return give_up(base::join(names, ","), lost);
  }

 private:
  static int64_t number_after(const std::string& text, const std::string& name) {
    auto at = text.find(name);
    if (at == std::string::npos) return 0;
    at = text.find_first_of("0123456789\n", at + name.size());
    return at == std::string::npos || text[at] == '\n' ? 0 : std::strtoll(text.c_str() + at, nullptr, 10);
  }

  std::vector<std::string> node_names() const {
    return base::split(
        base::trimmed(run({"scontrol", "show", "hostnames", get("SLURM_JOB_NODELIST")}).output), '\n');
  }

  Environment job_record() const {
    return scontrol_job(run({"scontrol", "show", "job", job_id()}).output, job_id());
  }

  // A task of an array has a name of its own; the last one's job id is the array's.
  std::string own_name() const {
    const auto answer = run({"squeue", "--noheader", "--jobs=" + job_id(), "--format=%A %i"});
    for (const auto& line : base::split(answer.output, '\n')) {
      const auto words = base::split(base::trimmed(line), ' ');
      if (words.size() == 2 && words[0] == job_id()) return words[1];
    }
    return job_id();
  }

  // A job that has given up its lost nodes lives on when Slurm notices that they are down.
  std::string give_up(const std::string& left, const std::vector<std::string>& lost) {
    const base::TemporaryFolder folder;  // scontrol leaves two files in its working folder
    base::Answer answer;
    for (int tries = 0; tries < 10; ++tries) {
      if (tries > 0) std::this_thread::sleep_for(std::chrono::seconds(1));
      answer =
          run({"env", "-C", folder.path(), "scontrol", "update", "JobId=" + job_id(), "NodeList=" + left});
      if (answer.good()) return "";
      // the accounting database does not know the job yet
      if ((answer.errors + answer.output).find("try again") == std::string::npos) break;
    }
    return format(
        "Slurm refused to take {} from this job ({}); without sbatch --no-kill it ends the job when it "
        "notices that a node is down",
        base::join(lost, ", "), base::printable(base::trimmed(answer.errors + answer.output)));
  }

  int port_ = -1;
};

}  // namespace

std::unique_ptr<Scheduler> make_slurm(Environment& environment, RunCommand run) {
  return std::make_unique<Slurm>(environment, std::move(run));
}

Environment scontrol_job(const std::string& answer, const std::string& job) {
  Environment fields;
  bool is_ours = false, is_first = true;
  for (const auto& line : base::split(answer, '\n')) {
    if (base::trimmed(line).empty()) {
      is_first = true;
      continue;
    }
    if (is_first) {  // it ends with the job's name, which may be anything
      is_ours = line.starts_with("JobId=" + job + " ");
      is_first = false;
      continue;
    }
    if (!is_ours) continue;
    for (const auto& word : base::split(base::trimmed(line), ' ')) {
      const auto sign = word.find('=');
      if (sign != std::string::npos) fields.emplace(word.substr(0, sign), word.substr(sign + 1));
    }
  }
  return fields;
}

}  // namespace lockstep::job
