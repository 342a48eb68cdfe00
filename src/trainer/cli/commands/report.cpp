// lockstep report RUN_FOLDER...: a run told on one page, or several side by side.
#include "tools/report/report.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/launch/process/error_reporter.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {

int run_report(const std::vector<std::string>& args) {
  std::vector<std::string> folders;
  std::string out;
  Options options("report", "one self-contained HTML page of a run, or of several side by side",
                  {"lockstep report runs/mnist", "lockstep report runs/mnist runs/mnist-2 --out both.html"});
  options.positional("RUN_FOLDER...", folders, "the runs' folders");
  options.add("out", out, "FILE", "the file to write (report.html in the run's folder, or here for several)");
  if (!options.parse(args)) return kDone;
  const auto self = launch::rank_by_environment(launch::current_environment());
  if (self.world > 1 && self.rank > 0) return kDone;  // one page
  if (!out.empty()) base::check_output(out, kElsewhere);
  const auto html = report::report({folders.begin(), folders.end()});
  const auto usual =
      folders.size() == 1 ? (std::filesystem::path(folders[0]) / "report.html").string() : "report.html";
  if (out.empty()) {
    base::write_own_output(usual, html, kElsewhere);
  } else {
    base::write_output(out, html, "free disk space, or choose another --out");
  }
  output::line(out.empty() ? usual : out);
  return kDone;
}

}  // namespace lockstep::cli
