// A job under PBS: its allocation, and how it is resubmitted.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/identify.h"
#include "tools/job/own_job.h"

namespace lockstep::job {
namespace {

class PbsJob : public OwnJob {
 public:
  using OwnJob::OwnJob;

  bool is_slurm() const override { return false; }
  std::string id() const override { return get("PBS_JOBID"); }

  Allocation allocation() override {
    record_ = record_of(id());
    const auto here = short_name(launch::read_host_facts({}).host);
    const auto node = run({"pbsnodes", here}).output;
    const auto counted = count(cluster::qstat_fields(node), "resources_available.ncpus", 0);
    return pbs_allocation(environment_, record_, base::split(base::read_text(get("PBS_NODEFILE")), '\n'),
                          threads_per_core(environment_, counted));
  }

  int64_t restarts() override { return std::max<int64_t>(0, count(record_, "run_count", 1) - 1); }

  Times times() override {
    return {0, cluster::seconds_between(value(record_, "etime"), value(record_, "stime"))};
  }

  std::string submit_line(const std::vector<std::string>&) override {
    if (environment_.contains("LOCKSTEP_RESTART")) return get("LOCKSTEP_SUBMITTED");
    const auto words = value(record_, "Submit_arguments");  // without the quotes that the shell removed
    if (words.empty()) return "";
    const std::filesystem::path folder = get("PBS_O_WORKDIR", ".");
    size_t script = 0;
    std::error_code none;  // words may be too long for a name, or in a closed folder
    while (script < words.size() && !std::filesystem::is_regular_file(folder / words.substr(script), none))
      script = std::min(words.find(' ', script), words.size() - 1) + 1;
    auto line = words.substr(0, script);
    for (const auto& [name, setting] : environment_) {
      const auto given = name + "=" + setting;
      if (const auto at = line.find(given); at != std::string::npos && !setting.empty())
        line.replace(at, given.size(), name + "=" + cluster::quoted(setting));
    }
    if (script < words.size()) line += cluster::quoted(words.substr(script));
    return format("cd {} && qsub {}", cluster::quoted(folder.string()), line);
  }

  // Without control groups PBS itself ends such a job, with SIGTERM. At the walltime there is no time to ask.
  std::string memory_exceeded(const StopSignal& stop) override {
    if (stop.signal != SIGTERM || is_past_walltime(stop)) return "";
    const auto fields = record_now();
    const auto bytes = [](const std::string& text) {
      const auto unit = std::min(text.find_first_not_of("0123456789"), text.size());
      const auto power = std::string_view("bkmgtp").find((text + "b")[unit]);
      return std::ldexp(static_cast<double>(base::number_in(text).value_or(0)), 10 * static_cast<int>(power));
    };
    const auto used = value(fields, "resources_used.mem"), limit = value(fields, "Resource_List.mem");
    if (limit.empty() || bytes(used) <= bytes(limit)) return "";
    return format("PBS ended the job (limit {}, used {})", limit, used);
  }

  // PBS sends SIGTERM for a qdel, a pre-emption and the walltime. The clock tells the last one apart, unless
  // the job was suspended or its walltime changed, so PBS must confirm it. Its own count of seconds may lag.
  std::optional<bool> was_cancelled(const StopSignal& stop) override {
    if (stop.signal == SIGTERM && record_.empty()) record_ = record_of(id());
    if (stop.signal != SIGTERM || !is_past_walltime(stop)) return stop.signal == SIGTERM;
    const auto fields = record_of(id());
    if (fields.empty()) return std::nullopt;
    const auto seconds = [&](const char* name) { return cluster::seconds_in(value(fields, name)); };
    return was_deleted(fields) ||
           seconds("resources_used.walltime") + 180 < seconds("Resource_List.walltime");
  }

  // From 60 on: by qrerun, or after a pre-emption.
  bool restarts_itself() override { return value(record_now(), "substate").starts_with("6"); }

  bool may_restart(const StopSignal& stop) override {
    return stop.signal == SIGTERM && value(record_, "Rerunable") != "False" && !was_deleted(record_now());
  }

  std::optional<std::string> continue_run(const Environment& settings,
                                          const std::function<bool()>& is_cancelled) override {
    if (record_.empty()) record_ = record_of(id(), 30);
    if (record_.empty()) {
      log::warning("qstat -f did not describe this job, so it cannot be resubmitted with the same resources");
      return std::nullopt;
    }
    // a new job would not count for the array's limit
    const auto array = get("PBS_ARRAY_ID");
    const auto fields = array.empty() ? record_ : record_of(array, 30);
    if (fields.empty() || fields.contains("max_run_subjobs")) {
      log::warning(format("{}, so this task is not resubmitted",
                          fields.empty() ? "qstat -f did not describe the array, which may have a limit"
                                         : "the array limits how many of its tasks run at once"));
      return std::nullopt;
    }
    const auto script = get("LOCKSTEP_SCRIPT");
    std::string text;
    try {
      text = base::read_text(script);
    } catch (const Error&) {
      log::warning(format("the job's script ({}) cannot be read, so the job cannot be resubmitted", script));
      return std::nullopt;
    }
    const auto restart = count(environment_, "LOCKSTEP_RESTART", 0) + 1;
    auto all = settings_to_pass(settings);
    all["LOCKSTEP_SUBMITTED"] = submit_line({});  // that of the new job names a file which is soon gone
    all["LOCKSTEP_RESTART"] = format("{}", restart);
    const base::TemporaryFolder folder;
    const auto file = folder.path() + "/job";
    base::replace_file(file, with_settings(text, all));
    std::vector<std::string> words = {"env", "-C", get("PBS_O_WORKDIR", "."), "qsub", "-C", ""};
    const auto options = qsub_options(record_, environment_, restart);
    words.insert(words.end(), options.begin(), options.end());
    words.push_back(file);
    base::Answer answer;
    for (int tries = 0; tries < 60; ++tries) {  // while the server restarts
      if (tries > 0) std::this_thread::sleep_for(std::chrono::seconds(1));
      if ((tries > 0 || !array.empty()) && is_cancelled()) return std::nullopt;
      answer = run(words);
      if (answer.errors.find("cannot connect") == std::string::npos) break;
    }
    const auto next = base::trimmed(answer.output);
    if (answer.good() && !next.empty()) return next.substr(next.rfind('\n') + 1);
    const bool is_late = answer.end == base::Answer::late;
    log::warning(is_late ? "qsub timed out and may have submitted the job: look with qselect -N " +
                               options[1] + " before you submit again"
                         : "qsub: " + base::printable(base::trimmed(answer.errors), 300));
    return is_late ? std::optional<std::string>(kPerhaps) : std::nullopt;
  }

  int daemon_port() override { return 15003; }  // of pbs_mom

  std::optional<bool> reaches(const std::string& node) override {
    const auto answer = run({"pbs_tmrsh", node, "true"});
    return answer.end == base::Answer::not_started ? std::optional<bool>() : answer.good();
  }

  std::string keep_only(const Allocation& left, const std::vector<std::string>& lost) override {
    if (lost.empty()) return "";
    std::string text;
    for (const auto& node : left.nodes)
      for (int64_t i = 0; i < node.tasks; ++i) text += node.name + "\n";
    nodes_ = std::make_unique<base::TemporaryFolder>();
    const auto file = nodes_->path() + "/nodes";
    base::replace_file(file, text);
    environment_["PBS_NODEFILE"] = file;
    return "";
  }

 private:
  bool is_past_walltime(const StopSignal& stop) const {
    const auto limit = cluster::seconds_in(value(record_, "Resource_List.walltime"));
    return limit > 0 && stop.job_seconds + 2 >= limit;
  }

  static bool was_deleted(const Environment& fields) {  // by qdel
    return value(fields, "comment").find(" and terminated by ") != std::string::npos;
  }

  Environment record_now() const { return record_of(id(), 1); }

  // Without it a restarted job would neither find its own run nor ask for the same resources.
  Environment record_of(const std::string& job, int most = 3) const {  // 30 tries take a minute
    for (int tries = 1;; ++tries) {
      const auto answer = run({"qstat", "-f", job});
      auto fields = cluster::qstat_fields(answer.output);
      if (!fields.empty() || tries == most || answer.end == base::Answer::not_started) return fields;
      std::this_thread::sleep_for(std::chrono::seconds(2));
    }
  }

  // The variables that the job was submitted with, and lockstep's own; not those that PBS sets in each job.
  Environment settings_to_pass(const Environment& settings) const {
    static const std::vector<std::string> kOfPbs = {
        "PBS_O_*",   "PBS_ENV*", "PBS_JOB*", "PBS_NODE*",       "PBS_TASK*",           "PBS_MOM*",
        "PBS_QUEUE", "TMPDIR",   "NCPUS",    "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"};
    Environment all = settings;
    for (const auto& entry : base::split(value(record_, "Variable_List"), ',')) {
      const auto name = entry.substr(0, entry.find('='));
      const bool is_name = !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
        return std::isalnum(c) || c == '_';
      });
      if (is_name && environment_.contains(name)) all.emplace(name, environment_.at(name));
    }
    if (environment_.contains("PBS_ARRAY_INDEX")) all["PBS_ARRAY_INDEX"] = get("PBS_ARRAY_INDEX");
    std::erase_if(all, [](const auto& entry) { return base::is_among(entry.first, kOfPbs); });
    return all;
  }

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
void add_resources(const Environment& record, std::vector<std::string>& options) {
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
// replace the one of the job before, so the new log gets another name.
void add_outputs(const Environment& record, const std::string& job, int64_t restart,
                 std::vector<std::string>& options) {
  const bool direct = value(record, "Keep_Files").find('d') != std::string::npos;
  const auto number = job.substr(0, job.find_first_of(".["));
  for (const auto& [field, flag] : {std::pair{"Output_Path", "-o"}, std::pair{"Error_Path", "-e"}}) {
    auto path = value(record, field);
    path.erase(0, path.find(':') + 1);
    const auto name = std::filesystem::path(path).filename().string();
    const bool by_default = (name + ".").find(format(".{}{}.", flag[1], number)) != std::string::npos;
    if (path.empty() || name.empty() || (by_default && !direct)) continue;
    std::error_code none;
    if (!direct && !by_default && !std::filesystem::is_directory(path, none))
      path = format("{}.restart-{}", path.substr(0, path.find(".restart-")), restart);
    options.insert(options.end(), {flag, path});
  }
}

}  // namespace

std::unique_ptr<OwnJob> make_pbs_job(Environment& environment, RunCommand run) {
  return std::make_unique<PbsJob>(environment, std::move(run));
}

std::string with_settings(const std::string& script, const Environment& settings) {
  const std::string begin = "# lockstep: settings of the job before\n",
                    end = "# lockstep: end of the settings\n";
  auto text = script + (script.ends_with('\n') ? "" : "\n"), block = begin;
  if (const auto from = text.find(begin), to = text.find(end); from < to && to != std::string::npos)
    text.erase(from, to + end.size() - from);
  for (const auto& [name, setting] : settings)
    block += format("export {}={}\n", name, cluster::quoted(setting));
  size_t command = 0;
  for (size_t start; (start = text.find_first_not_of(" \t", command)) != std::string::npos;) {
    if (text[start] != '#' && text[start] != '\n') break;
    command = text.find('\n', start) + 1;
  }
  return text.insert(command, block + end);
}

std::vector<std::string> qsub_options(const Environment& record, const Environment& environment,
                                      int64_t restart) {
  std::vector<std::string> options = {"-N", job_name(value(record, "Job_Name"))};
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
  add_outputs(record, value(environment, "PBS_JOBID"), restart, options);
  return options;
}

}  // namespace lockstep::job
