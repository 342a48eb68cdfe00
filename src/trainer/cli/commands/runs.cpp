// lockstep runs, status, report: what runs have come to.
#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"
#include "lockstep/base/program.h"
#include "lockstep/launch/process/leave.h"
#include "lockstep/launch/process/terminal.h"
#include "tools/report/page.h"
#include "tools/report/run_list.h"
#include "trainer/cli/options.h"
#include "trainer/run_folder/status.h"

namespace lockstep::cli {

// lockstep report RUN_FOLDER...: a run told on one page, or several side by side.

int run_report(const std::vector<std::string>& args) {
  std::vector<std::string> folders;
  std::string out;
  Options options("report", "writes a self-contained HTML page about one run or several",
                  {"lockstep report runs/mnist", "lockstep report runs/mnist runs/mnist-2 --out both.html"});
  options.positional("RUN_FOLDER...", folders, "the runs' folders");
  options.add("out", out, "FILE",
              "the file to write (default: report.html in the run folder, or here for several runs)");
  if (!options.parse(args)) return kDone;
  const auto self = launch::rank_by_environment(launch::current_environment());
  if (self.world > 1 && self.rank > 0) return kDone;  // one page
  if (!out.empty()) base::check_output(out, kChooseOutHint);
  const auto html = report::report({folders.begin(), folders.end()});
  const auto usual =
      folders.size() == 1 ? (std::filesystem::path(folders[0]) / "report.html").string() : "report.html";
  const auto file = out.empty() ? usual : out;
  if (out.empty()) base::check_output(file, kChooseOutHint);
  base::write_output(file, html, "free disk space, or choose another --out");
  output::line(file);
  return kDone;
}

// lockstep status: the state of a run, in words and as an exit status.

int run_status(const std::vector<std::string>& args) {
  std::string folder;
  bool json = false;
  Options options(
      "status",
      "shows the state of a run; exit status: 0 done, 1 failed, 3 running, 4 stopped on request, 75 stopped "
      "early (run it again)",
      {"lockstep status runs/mnist", "lockstep status runs/mnist --json"});
  options.positional("RUN_FOLDER", folder, "the run's folder");
  options.flag("json", json, "one JSON object, for programs");
  if (!options.parse(args)) return kDone;
  const auto verdict = run_folder::job_status(folder);
  json ? static_cast<void>(output::print(to_json(verdict))) : output::line(verdict.text);
  return verdict.exit_status;
}

// lockstep runs [DIR]: the state of every run there, and in what they differ.
int run_runs(const std::vector<std::string>& args) {
  std::string folder = "runs", order = "name", columns;
  bool json = false, csv = false;
  Options options("runs", "compares all runs in a folder: states, metrics, and the settings that differ",
                  {"lockstep runs", "lockstep runs runs --sort eval_loss",
                   "lockstep runs --columns optim.lr,accuracy,when", "lockstep runs sweep --json"});
  options.positional("DIR", folder, "the folder that holds the runs (default runs)", false);
  options.add("sort", order, "KEY",
              "name, state, epoch, step, when, a metric (the best first) or a config key");
  options.add("columns", columns, "A,B,...",
              "the columns after the run's name (default: the metrics and the keys that differ)");
  options.flag("json", json, "print everything as JSON, for programs");
  options.flag("csv", csv, "print one line per run: every metric, and the keys that differ");
  if (!options.parse(args)) return kDone;
  const auto self = launch::rank_by_environment(launch::current_environment());
  if (self.world > 1 && self.rank > 0) return kDone;  // one table
  auto list = report::list_runs(std::filesystem::path(folder));
  report::sort_runs(list, order);
  if (json) return output::print(base::as_lines(report::run_json(list))), kDone;
  for (const auto& [passed_over, reason] : list.passed_over)
    log::warning(format("skipped: {}: {}", passed_over, reason));
  for (const auto& run : list.runs)
    for (const auto& trouble : run.troubles) log::warning(format("{}: {}", run.folder, trouble));
  if (csv) return output::print(report::run_csv(list)), kDone;
  if (list.runs.empty()) return output::line("no runs in " + folder), kDone;
  auto words = base::split(columns, ',');
  std::erase(words, "");
  const auto terminal = launch::terminal_behind(1);
  output::print(report::run_table(list, terminal ? terminal->width() : 0, words));
  return kDone;
}

}  // namespace lockstep::cli
