// This job under Slurm or PBS: its allocation, how it continues, and the nodes that it gives up.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/scheduler.h"
#include "tools/job/job.h"

namespace lockstep::job {
namespace {

using Words = std::vector<std::string>;
using Clock = std::chrono::steady_clock;

int64_t seconds_in(const Environment& fields, const char* name) {
  return launch::seconds_in(value(fields, name)).count();
}

int64_t seconds_between(const Environment& fields, const char* begin, const char* end) {
  const auto from = launch::time_in(value(fields, begin)), to = launch::time_in(value(fields, end));
  if (!from || !to) return 0;
  return std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::seconds>(*to - *from).count());
}

// A log may be readable by others, and the values of variables are not. The line has lost its quotes, so a
// value may have blanks and commas, as the environment tells.
std::string without_values(std::string line, const Environment& environment) {
  static const Words kShown = {"LOCKSTEP_*", "CONFIG", "SET", "RUN", "BENCH", "EXERCISE", "OWN_PROGRAM"};
  for (size_t sign = 0; (sign = line.find('=', sign + 1)) != std::string::npos;) {
    constexpr const char* kLower = "abcdefghijklmnopqrstuvwxyz";
    const auto word = line.rfind(' ', sign) + 1;  // npos + 1 is 0
    const auto before = line.substr(0, word);
    const bool is_list = line.compare(word, 9, "--export=") == 0 || line.compare(word, 2, "-v") == 0 ||
                         before.ends_with("-v ") || before.ends_with("--export ") || before.ends_with(", ");
    auto begin = std::max(line.find_last_of(" ,=", sign - 1) + 1, word);
    if (line.compare(begin, 2, "-v") == 0) begin += 2;
    const auto name = line.substr(begin, sign - begin);
    const bool is_variable = is_list ? name != "--export" : name.find_first_of(kLower) == name.npos;
    if (name.empty() || !is_variable) continue;
    const auto known = value(environment, name);
    const auto least = line.compare(sign + 1, known.size(), known) == 0 ? known.size() : 0;
    const auto size = std::min(line.find_first_of(" ,", sign + 1 + least), line.size()) - sign - 1;
    const auto shown =
        base::is_among(name, kShown) ? cluster::quoted(line.substr(sign + 1, size)) : std::string("...");
    line.replace(sign + 1, size, shown);
    sign += shown.size();
  }
  return line;
}

void warn_of_layout() {
  log::warning(
      "the scheduler did not describe this job: its number of ranks may differ from what was requested");
}

}  // namespace

bool signal_waits() {
  sigset_t waiting;
  ::sigpending(&waiting);
  ::sigdelset(&waiting, SIGCHLD);
  return ::sigisemptyset(&waiting) == 0;
}

base::Answer OwnJob::ask_again(const Words& words, bool until_signal, int64_t most) const {
  const auto start = Clock::now();
  base::Answer answer;
  for (auto pause = pause_;; pause = std::min(2 * pause, 30 * pause_)) {
    if (until_signal && signal_waits()) return answer;
    answer = run(words);
    const auto says = [&](const char* part) { return contains(answer.errors, part); };
    // a late qsub may have submitted a job
    const bool is_late = answer.end == base::Answer::late && std::ranges::count(words, "qsub") == 0;
    const bool is_down = is_late || says("Unable to contact") || says("cannot connect") ||
                         (words[0] == "qstat" && answer.end == base::Answer::left && answer.status != 0);
    const bool is_busy = is_down || says("try again");
    const auto limit = most > 0 ? most : !is_down ? 10 : is_slurm() ? 300 : 60;
    if (answer.good() || !is_busy || Clock::now() - start > limit * pause_) return answer;
    if (pause == pause_)
      log::warning(format("trying again: {}\n{}", base::join(words, " "), base::trimmed(answer.errors)));
    // the tasks of an array do not ask all at once
    std::this_thread::sleep_for((is_down ? pause : pause_) * (::getpid() % 8 + 8) / 8);
  }
}

namespace {

// ---- Slurm ----

class SlurmJob : public OwnJob {
 public:
  using OwnJob::OwnJob;

  bool is_slurm() const override { return true; }
  std::string id() const override { return get("SLURM_JOB_ID"); }

  Allocation allocation() override {
    // sbatch --export must not keep OMP_NUM_THREADS and the like from the ranks
    environment_["SLURM_EXPORT_ENV"] = "ALL";
    Words names;
    if (get("SLURM_HET_SIZE", "1") == "1")
      names = base::split(
          base::trimmed(run({"scontrol", "show", "hostnames", get("SLURM_JOB_NODELIST")}).output), '\n');
    const auto here = ask_again({"scontrol", "show", "node", get("SLURMD_NODENAME")}, false, 10).output;
    if (here.empty()) warn_of_layout();
    return slurm_allocation(environment_, names,
                            threads_per_core(environment_, number_after(here, "CPUTot")));
  }

  int64_t restarts() override { return count(environment_, "SLURM_RESTART_COUNT", 0); }

  Times times() override {
    const auto fields = record();
    return {seconds_in(fields, "RunTime"), seconds_between(fields, "EligibleTime", "StartTime")};
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

  // The accounting database knows the options that sbatch was given. Slurm joins the words without quotes.
  std::string submit_line(const Words& words) override {
    if (environment_.contains("LOCKSTEP_SUBMITTED")) return get("LOCKSTEP_SUBMITTED");
    const Words ask = {"sacct",      "--jobs=" + id(), "--allocations",
                       "--noheader", "--parsable2",    "--format=SubmitLine"};
    auto known = run(ask).output;
    known = base::trimmed(known.substr(0, known.find('\n')));  // a line for each task or component
    auto line = known.empty() ? value(record(), "Command") : known;
    if (line.empty() || line == "(null)") return "";  // a script from standard input
    const auto end = " " + base::join(words, " ");
    const bool has_words = !words.empty() && line.ends_with(end);
    if (has_words) line.resize(line.size() - end.size());
    line = without_values(line, environment_);
    if (known.empty()) line = "sbatch " + cluster::quoted(line);
    if (has_words) line += " " + cluster::quoted(words);
    const auto task = get("SLURM_ARRAY_TASK_ID");
    if (!task.empty() && line.starts_with("sbatch ")) {
      for (const std::string flag : {" --array=", " --array ", " -a ", " -a"})  // all its tasks
        if (const auto at = line.find(flag); at != std::string::npos)
          line.erase(at, line.find(' ', at + flag.size()) - at);
      line.insert(6, " --array=" + task);
    }
    return format("cd {} && {}", cluster::quoted(get("SLURM_SUBMIT_DIR", ".")), line);
  }

  // Slurm counts a requeue by an operator, a node failure and a preemption at once. Without an answer a
  // requeue could restart a job that a person has cancelled.
  Fate fate(int /*stop*/) override {
    const auto fields = record(true);
    const auto state = value(fields, "JobState"), preempted = value(fields, "PreemptTime", "None");
    if (count(fields, "Restarts", 0) > restarts()) return Fate::restarts;
    if (state.empty()) return Fate::unknown;
    const bool has_ended = state == "COMPLETING" || state == "CANCELLED";
    const bool by_slurm =
        value(fields, "Reason") == "TimeLimit" || (preempted != "None" && preempted != "Unknown");
    return has_ended && !by_slurm ? Fate::cancelled : Fate::ended;
  }

  std::optional<std::string> continue_run() override {
    const auto answer = ask_again({"scontrol", "requeue", own_name()}, true);
    if (answer.good()) return "";
    if (!signal_waits()) log::warning(cluster::trouble_of("scontrol requeue", answer));
    return std::nullopt;
  }

  // Slurm sends the signal of --signal=B:USR1@120 at once to a job of at most those 120 s, or up to 60 s
  // more.
  bool is_warned_early() override {
    const auto limit = seconds_in(record(), "TimeLimit");
    return limit > 0 && limit <= 180;
  }

  int daemon_port() override {
    return static_cast<int>(
        number_after(ask_again({"scontrol", "show", "config"}, true).output, "SlurmdPort"));
  }

  bool answers() override { return !record().empty(); }

  std::string keep_only(const Allocation& left, const Words& lost) override {
    // A step may wait for its lost node, and hold resources that the next step needs. Other steps are the
    // user's.
    const auto steps =
        run({"squeue", "--noheader", "--steps", "--jobs=" + own_name(), "--format=%i %j"}).output;
    Words cancel = {"scancel"};
    for (const auto& line : base::split(steps, '\n')) {
      const auto step = base::trimmed(line), name = step.substr(step.find(' ') + 1);  // npos + 1 is 0
      if (base::is_among(name, {kStepName, "orted", "prted", "hydra_*"}))
        cancel.push_back(step.substr(0, step.find(' ')));
    }
    if (cancel.size() > 1) log::info("canceling the job's steps: " + base::join(cancel, " "));
    if (cancel.size() > 1) run(cancel);
    // The step of a lost node may keep its memory for a while, and --overlap does not share memory.
    for (const char* name : {"SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU"}) environment_.erase(name);
    environment_["SLURM_MEM_PER_NODE"] = "0";
    if (lost.empty()) return "";
    const auto list = [&](auto field) {
      Words all;
      for (const auto& node : left.nodes) all.push_back(format("{}", node.*field));
      return base::join(all, ",");
    };
    const auto names = list(&Node::name);
    for (const char* name : {"SLURM_JOB_NODELIST", "SLURM_NODELIST"}) environment_[name] = names;
    for (const char* name : {"SLURM_JOB_NUM_NODES", "SLURM_NNODES"})
      environment_[name] = format("{}", left.nodes.size());
    environment_["SLURM_JOB_CPUS_PER_NODE"] = list(&Node::cpus);
    environment_["SLURM_TASKS_PER_NODE"] = list(&Node::tasks);
    for (const auto& [name, field] : {std::pair{"SLURM_NTASKS", &Node::tasks},
                                      {"SLURM_NPROCS", &Node::tasks},
                                      {"SLURM_GPUS", &Node::gpus}})
      if (!get(name).empty()) environment_[name] = format("{}", sum_of(field, left));
    // Slurm ends a job when it notices that a node is down, unless the job has released it.
    const base::TemporaryFolder folder;  // scontrol writes two files into its working folder
    const auto answer =
        ask_again({"env", "-C", folder.path(), "scontrol", "update", "JobId=" + id(), "NodeList=" + names});
    if (answer.good()) return "";
    return format(
        "Slurm did not release {} ({}); without sbatch --no-kill it ends the job when it notices that a node "
        "is down",
        base::join(lost, ", "), base::printable(base::trimmed(answer.errors + answer.output)));
  }

 private:
  static int64_t number_after(const std::string& text, const std::string& name) {
    const auto at = text.find_first_of("0123456789", text.find(name));
    return at == std::string::npos ? 0 : std::atoll(text.c_str() + at);
  }

  // This job's paragraph: the answer has one for each task of an array.
  Environment record(bool waits = false) const {
    Environment fields;
    bool is_ours = false;
    const Words words = {"scontrol", "show", "job", id()};
    for (const auto& line : base::split((waits ? ask_again(words) : run(words)).output, '\n')) {
      const auto text = base::trimmed(line.substr(0, line.find(" JobName=")));  // which may be anything
      if (text.starts_with("JobId=")) is_ours = (text + " ").starts_with("JobId=" + id() + " ");
      if (!is_ours) continue;
      if (text.starts_with("Command=")) fields["Command"] = text.substr(8);  // which may contain blanks
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
};

// ---- PBS ----

class PbsJob : public OwnJob {
 public:
  using OwnJob::OwnJob;

  bool is_slurm() const override { return false; }
  std::string id() const override { return get("PBS_JOBID"); }

  Allocation allocation() override {
    record_ = record_soon();
    if (record_.empty()) warn_of_layout();
    const auto here = short_name(launch::read_host_facts({}).host);
    const auto node = run({"pbsnodes", here}).output;
    const auto counted = count(launch::qstat_fields(node), "resources_available.ncpus", 0);
    return pbs_allocation(environment_, record_, base::split(base::read_text(get("PBS_NODEFILE")), '\n'),
                          threads_per_core(environment_, counted));
  }

  int64_t restarts() override { return std::max<int64_t>(0, count(record_, "run_count", 1) - 1); }

  Times times() override { return {0, seconds_between(record_, "etime", "stime")}; }

  std::string submit_line(const Words&) override {
    if (environment_.contains("LOCKSTEP_SUBMITTED")) return get("LOCKSTEP_SUBMITTED");
    const auto words = value(record_, "Submit_arguments");  // without the quotes that the shell removed
    if (words.empty()) return "";
    return format("cd {} && qsub {}", cluster::quoted(get("PBS_O_WORKDIR", ".")),
                  without_values(words, environment_));
  }

  // Without control groups PBS itself ends such a job. Its SIGTERM may come after the ranks' end.
  std::string memory_exceeded() override {
    const auto reason = kill_reason();
    return contains(reason, "mem ") ? "PBS ended the job: " + reason : "";
  }

  // PBS sends SIGTERM for a qdel, a preemption, a qrerun and the walltime.
  Fate fate(int stop) override {
    const auto reason = kill_reason();
    if (stop != SIGTERM && !contains(reason, "mem ")) return Fate::ended;
    const auto fields = record_soon();
    if (value(fields, "substate").starts_with("6")) return Fate::restarts;
    const bool was_deleted = contains(value(fields, "comment"), " and terminated by ");  // by qdel
    if (fields.empty() && reason.empty()) return Fate::unknown;
    if (reason.starts_with("walltime ") && !was_deleted) return Fate::ended;
    const bool is_over = was_deleted || !reason.empty() || value(fields, "Rerunable") == "False";
    return is_over ? Fate::cancelled : Fate::perhaps_restarts;
  }

  std::optional<std::string> continue_run() override {
    if (record_.empty()) record_ = record(id());
    if (record_.empty()) {
      log::warning("qstat -f returned nothing, so this job cannot be resubmitted with the same resources");
      return std::nullopt;
    }
    // a new job would not count for the array's limit
    const auto array = get("PBS_ARRAY_ID");
    const auto fields = array.empty() ? record_ : record(array);
    if (fields.empty() || fields.contains("max_run_subjobs")) {
      log::warning(
          "the array limits how many of its tasks run at once, or qstat -f did not describe it, so "
          "this task is not resubmitted");
      return std::nullopt;
    }
    std::ostringstream script;
    script << std::ifstream(get("LOCKSTEP_SCRIPT")).rdbuf();
    if (script.str().empty()) {
      log::warning("the job's script (LOCKSTEP_SCRIPT) cannot be read, so the job cannot be resubmitted");
      return std::nullopt;
    }
    auto all = settings_to_pass();
    all["LOCKSTEP_SUBMITTED"] = submit_line({});  // that of the new job names a file which is soon gone
    all["LOCKSTEP_RESTART"] = format("{}", count(environment_, "LOCKSTEP_RESTART", 0) + 1);
    const base::TemporaryFolder folder;
    const auto file = folder.path() + "/job";
    base::replace_file(file, with_settings(script.str(), all));
    Words words = {"env", "-C", get("PBS_O_WORKDIR", "."), "qsub", "-C", ""};
    const auto options = qsub_options(record_, environment_);
    words.insert(words.end(), options.begin(), options.end());
    words.push_back(file);
    const auto answer = ask_again(words, true);
    const auto next = base::trimmed(answer.output);
    if (answer.good() && !next.empty()) return next.substr(next.rfind('\n') + 1);
    if (answer.end == base::Answer::late) {
      log::warning("qsub timed out and may have submitted the job: check with qselect -N " + options[1] +
                   " before you resubmit");
      return kPerhaps;
    }
    if (!signal_waits()) log::warning(cluster::trouble_of("qsub", answer));
    return std::nullopt;
  }

  int daemon_port() override { return 15003; }  // of pbs_mom

  bool answers() override { return !record_soon().empty(); }

  std::string keep_only(const Allocation& left, const Words& lost) override {
    if (lost.empty()) return "";
    std::string text;
    for (const auto& node : left.nodes)
      for (int64_t i = 0; i < node.tasks; ++i) text += node.name + "\n";
    nodes_ = std::make_unique<base::TemporaryFolder>();
    const auto file = nodes_->path() + "/nodes";
    base::replace_file(file, text);
    environment_["LOCKSTEP_NODEFILE"] = file;
    return "";
  }

 private:
  // "walltime 36 exceeded limit 30", as pbs_mom writes it into the job's log before it ends the job.
  std::string kill_reason() const {
    const std::string mark = "=>> PBS: job killed: ";
    std::string reason;
    std::ifstream log(log_begin_ < 0 ? "" : kLog);
    log.seekg(log_begin_);
    for (std::string line; std::getline(log, line);)
      if (line.starts_with(mark) && contains(line, " exceeded limit"))
        reason = base::printable(line.substr(mark.size()));
    return reason;
  }

  Environment record(const std::string& job) const {
    return launch::qstat_fields(ask_again({"qstat", "-f", job}).output);
  }

  // With three tries: a job that PBS ends has ten seconds, and a site may not let its nodes ask.
  Environment record_soon() const {
    return launch::qstat_fields(ask_again({"qstat", "-f", id()}, false, 2).output);
  }

  // The variables that the job was submitted with, and lockstep's own; not those that PBS sets in each job.
  Environment settings_to_pass() const {
    static const Words kOwn = {"LOCKSTEP_*", "CONFIG", "SET", "PBS_ARRAY_INDEX"};
    static const auto kOfThisJob = base::split(
        "PBS_O_*,PBS_ENV*,PBS_JOB*,PBS_NODE*,PBS_TASK*,PBS_MOM*,PBS_QUEUE,TMPDIR,NCPUS,OMP_NUM_THREADS,"
        "CUDA_VISIBLE_DEVICES,LOCKSTEP_SCRIPT,LOCKSTEP_NODEFILE",
        ',');
    std::set<std::string> given;
    for (const auto& entry : base::split(value(record_, "Variable_List"), ','))
      given.insert(entry.substr(0, entry.find('=')));
    Environment all;
    for (const auto& [name, setting] : environment_) {
      const bool is_own = !setting.empty() && base::is_among(name, kOwn);
      const bool is_name =
          std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) || c == '_'; });
      if ((is_own || (given.contains(name) && is_name)) && !base::is_among(name, kOfThisJob))
        all[name] = setting;
    }
    return all;
  }

  static constexpr const char* kLog = "/proc/self/fd/2";
  std::error_code none_;
  const int64_t log_begin_ = static_cast<int64_t>(std::filesystem::file_size(kLog, none_));  // -1: not a file
  Environment record_;
  std::unique_ptr<base::TemporaryFolder> nodes_;
};

// Options of qsub, and their fields of qstat -f.
constexpr const char* kOptions =
    "-A Account_Name,-m Mail_Points,-M Mail_Users,-j Join_Path,-k Keep_Files,-p Priority,-S Shell_Path_List,"
    "-u User_List,-P project,-W group_list,-W umask,-W sandbox,-W stagein,-W stageout,"
    "-W tolerate_node_failures";

std::string job_name(std::string name) {
  const std::string_view others = ".+_-";
  std::ranges::replace_if(
      name, [&](unsigned char c) { return !std::isalnum(c) && others.find(c) == others.npos; }, '_');
  return name;
}

// PBS adds sums over the chunks (ncpus, mem, nodect) to the record, and rejects them beside select.
void add_resources(const Environment& record, Words& options) {
  std::set<std::string> sums = {"nodect", "nodes", "ncpus", "mem", "vmem", "mpiprocs", "ompthreads"};
  auto chunks = value(record, "Resource_List.select") + ":" + value(record, "schedselect");
  std::ranges::replace(chunks, '+', ':');
  for (const auto& word : base::split(chunks, ':'))
    if (const auto sign = word.find('='); sign != std::string::npos) sums.insert(word.substr(0, sign));
  const std::string prefix = "Resource_List.";
  for (const auto& [name, setting] : record) {
    if (name.starts_with(prefix) && !sums.contains(name.substr(prefix.size())))
      options.insert(options.end(), {"-l", name.substr(prefix.size()) + "=" + setting});
  }
}

// With -k d PBS appends to the log while the job writes. Otherwise it copies the log at the end, which would
// replace the one of the job before, so the new log is beside it, under the name that PBS chooses.
void add_outputs(const Environment& record, const std::filesystem::path& submitted_in, Words& options) {
  const bool direct = value(record, "Keep_Files").find('d') != std::string::npos;
  for (const auto& [field, flag] : {std::pair{"Output_Path", "-o"}, std::pair{"Error_Path", "-e"}}) {
    std::filesystem::path path = value(record, field).substr(value(record, field).find(':') + 1);
    std::error_code none;
    if (!direct && !std::filesystem::is_directory(path, none)) path = path.parent_path();
    if (!path.empty() && path != submitted_in) options.insert(options.end(), {flag, path.string()});
  }
}

}  // namespace

std::unique_ptr<OwnJob> make_job(Environment& environment, RunCommand run, std::chrono::milliseconds pause) {
  if (!value(environment, "SLURM_JOB_ID").empty())
    return std::make_unique<SlurmJob>(environment, std::move(run), pause);
  if (!value(environment, "PBS_JOBID").empty() && !value(environment, "PBS_NODEFILE").empty())
    return std::make_unique<PbsJob>(environment, std::move(run), pause);
  throw InputError("this process is not in a job: neither SLURM_JOB_ID nor PBS_NODEFILE is set",
                   "lockstep job", "submit a job script with sbatch or qsub");
}

std::string with_settings(const std::string& script, const Environment& settings) {
  const std::string begin = "# lockstep: settings of the job before\n",
                    end = "# lockstep: end of the settings\n";
  auto text = script + (script.ends_with('\n') ? "" : "\n"), block = begin;
  if (const auto from = text.find(begin), to = text.find(end); from < to && to != std::string::npos)
    text.erase(from, to + end.size() - from);
  for (const auto& [name, setting] : settings)
    block += format("export {}={}\n", name, cluster::quoted(setting));
  return text.insert(text.starts_with("#!") ? text.find('\n') + 1 : 0, block + end);
}

Words qsub_options(const Environment& record, const Environment& environment) {
  Words options = {"-N", job_name(value(record, "Job_Name"))};
  for (const auto& option : base::split(kOptions, ',')) {
    const auto flag = option.substr(0, 2), field = option.substr(3), setting = value(record, field);
    if (setting.empty() || setting == "_pbs_project_default") continue;
    options.insert(options.end(), {flag, (flag == "-W" ? field + "=" : "") + setting});
  }
  if (const auto rerun = value(record, "Rerunable"); !rerun.empty())
    options.insert(options.end(), {"-r", rerun == "False" ? "n" : "y"});
  // the execution queue behind a routing queue may not accept jobs from users
  if (const auto queue = value(environment, "PBS_O_QUEUE"); !queue.empty())
    options.insert(options.end(), {"-q", queue});
  add_resources(record, options);
  add_outputs(record, value(environment, "PBS_O_WORKDIR"), options);
  return options;
}

}  // namespace lockstep::job
