// What became of each run, in a line or two.
#include <algorithm>

#include "lockstep/base/format.h"
#include "lockstep/plot/page.h"
#include "lockstep/report/parts.h"
#include "lockstep/report/run_list.h"

namespace lockstep::report {
namespace {

std::string last_of(const std::map<std::string, Curve>& curves, const char* key) {
  const auto found = curves.find(key);
  return found == curves.end() || found->second.y.empty() ? "" : format("{:.4f}", found->second.y.back());
}

}  // namespace

std::string summary(const Runs& runs) {
  const bool act = std::ranges::any_of(
      runs, [](const RunData& run) { return last_of(run.epochs, "recent_reward") != ""; });
  std::vector<std::vector<std::string>> rows = {
      {"run", "task", "what became of it", "training loss", "evaluation loss", "accuracy"}};
  if (act) rows[0].push_back("reward");
  for (const auto& run : runs) {
    rows.push_back({run.name, setting(run, "task.name"), run.verdict, last_of(run.epochs, "train_loss"),
                    last_of(run.epochs, "eval_loss"), last_of(run.epochs, "accuracy")});
    if (act) rows.back().push_back(last_of(run.epochs, "recent_reward"));
  }
  return plot::table(rows);
}

std::string troubles(const Runs& runs) {
  std::string html;
  for (const auto& run : runs) {
    for (const auto& trouble : run.troubles)
      html += "<li>" + plot::escaped(run.name + ": " + trouble) + "</li>\n";
  }
  return html.empty() ? html : "<ul>\n" + html + "</ul>\n";
}

}  // namespace lockstep::report
