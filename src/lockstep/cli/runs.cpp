// lockstep runs [DIR]: what became of every run there, and in what they differ.
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/output.h"
#include "lockstep/cli/options.h"
#include "lockstep/launch/terminal.h"
#include "lockstep/launch/voice.h"
#include "lockstep/report/run_list.h"

namespace lockstep::cli {
namespace {

void print_runs_json(const report::RunList& list) {
  output::print(report::run_json(list).dump(2, ' ', false, report::Json::error_handler_t::replace) + "\n");
}

void print_runs_table(const report::RunList& list, const std::string& folder) {
  for (const auto& [passed_over, reason] : list.passed_over)
    log::warning(format("passed over: {}: {}", passed_over, reason));
  for (const auto& run : list.runs) {
    for (const auto& trouble : run.troubles) log::warning(format("{}: {}", run.folder, trouble));
  }
  if (list.runs.empty()) return output::line("no runs in " + folder);
  const auto terminal = launch::terminal_behind(1);
  output::print(report::run_table(list, terminal ? terminal->width() : 0));
}

}  // namespace

int run_runs(const std::vector<std::string>& args) {
  std::string folder = "runs", order = "name";
  bool json = false;
  Options options("runs", "all runs of a folder side by side: states, metrics, and the settings that differ",
                  {"lockstep runs", "lockstep runs runs --sort eval_loss", "lockstep runs sweep --json"});
  options.positional("DIR", folder, "the folder that holds the runs (default runs)", false);
  options.add("sort", order, "KEY",
              "name, state, epoch, step, when, a metric (the best first) or a config key");
  options.flag("json", json, "everything, for programs");
  if (!options.parse(args)) return kDone;
  const auto self = launch::rank_by_environment(launch::current_environment());
  if (self.world > 1 && self.rank > 0) return kDone;  // one table
  auto list = report::list_runs(std::filesystem::path(folder));
  report::sort_runs(list, order);
  json ? print_runs_json(list) : print_runs_table(list, folder);
  return kDone;
}

}  // namespace lockstep::cli
