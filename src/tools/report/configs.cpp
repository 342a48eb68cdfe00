// What differs between runs, and what each was told.
#include <algorithm>

#include "tools/plot/page.h"
#include "tools/report/parts.h"

namespace lockstep::report {
namespace {

std::string value_in(const RunData& run, const std::string& key) {
  const auto found = std::ranges::find(run.settings, key, &std::pair<std::string, std::string>::first);
  return found == run.settings.end() ? "–" : found->second.empty() ? "(empty)" : found->second;
}

std::vector<std::string> all_keys(const Runs& runs) {
  std::vector<std::string> keys;
  for (const auto& run : runs) {
    for (const auto& [key, value] : run.settings) {
      if (!std::ranges::count(keys, key)) keys.push_back(key);
    }
  }
  return keys;
}

std::string differences(const Runs& runs) {
  std::vector<std::vector<std::string>> rows(1, {"key"});
  for (const auto& run : runs) rows[0].push_back(run.name);
  for (const auto& key : all_keys(runs)) {
    std::vector<std::string> row = {key};
    for (const auto& run : runs) row.push_back(value_in(run, key));
    if (std::adjacent_find(row.begin() + 1, row.end(), std::not_equal_to()) != row.end()) rows.push_back(row);
  }
  return rows.size() == 1 ? "<p>Their configs are the same.</p>\n" : plot::table(rows);
}

}  // namespace

std::string configs(const Runs& runs) {
  auto html = runs.size() > 1 ? differences(runs) : "";
  for (const auto& run : runs) {
    if (run.config.empty()) continue;
    html += "<details><summary>" + plot::escaped(run.name) + "/config.yaml</summary><pre>" +
            plot::escaped(run.config) + "</pre></details>\n";
  }
  return html;
}

}  // namespace lockstep::report
