// The result of each run, in a line or two.
#include <algorithm>
#include <array>

#include "lockstep/base/format.h"
#include "tools/plot/page.h"
#include "tools/report/parts.h"
#include "tools/report/run_list.h"

namespace lockstep::report {
namespace {

using Rows = std::vector<std::vector<std::string>>;

struct Shown {
  const char *head, *metric;
  int digits;
};
constexpr std::array<Shown, 4> kShown = {{{"training loss", "train_loss", 4},
                                          {"evaluation loss", "eval_loss", 4},
                                          {"accuracy", "accuracy", 4},
                                          {"reward", "recent_reward", 2}}};

std::string last_of(const RunData& run, const Shown& column) {
  const auto found = run.epochs.find(column.metric);
  if (found == run.epochs.end() || found->second.y.empty()) return "";
  return format("{:.{}f}", found->second.y.back(), column.digits);
}

// Facts as rows, which a phone has room for.
Rows turned(const Rows& rows) {
  Rows turned(rows.at(0).size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) turned[i].push_back(row[i]);
  }
  return turned;
}

}  // namespace

// A number that no run has gets no column.
std::string summary(const Runs& runs) {
  Rows rows = {{"run", "task", "result"}};
  for (const auto& run : runs) rows.push_back({run.name, setting(run, "task.name"), run.outcome});
  for (const auto& column : kShown) {
    if (std::ranges::all_of(runs, [&](const RunData& run) { return last_of(run, column).empty(); })) continue;
    rows[0].emplace_back(column.head);
    for (size_t i = 0; i < runs.size(); ++i) rows[i + 1].push_back(last_of(runs[i], column));
  }
  return plot::table(runs.size() == 1 ? turned(rows) : rows);
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
