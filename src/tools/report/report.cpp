#include "tools/report/report.h"

#include <array>
#include <map>

#include "lockstep/base/format.h"
#include "tools/plot/page.h"
#include "tools/report/parts.h"

namespace lockstep::report {
namespace {

struct Part {
  const char* heading;
  std::string (*make)(const Runs&);
};
constexpr std::array<Part, 8> kParts = {{{"Result", summary},
                                         {"Curves", curves},
                                         {"Evaluation", evaluation},
                                         {"Phases", phases},
                                         {"Time line", time_line},
                                         {"Stops and restarts", attempts},
                                         {"Config", configs},
                                         {"What could not be read", troubles}}};

// Folders of one name get the parts that tell them apart.
void tell_apart(Runs& runs) {
  std::map<std::string, int> seen;
  for (const auto& run : runs) ++seen[run.name];
  for (auto& run : runs) {
    if (seen[run.name] > 1) run.name = run.folder;
  }
}

}  // namespace

std::string report(const std::vector<std::filesystem::path>& folders) {
  Runs runs;
  for (const auto& folder : folders) runs.push_back(read_run(folder));
  tell_apart(runs);
  std::vector<plot::Section> sections;
  for (const auto& [heading, make] : kParts) {
    if (auto body = make(runs); !body.empty()) sections.push_back({heading, std::move(body)});
  }
  return plot::page(runs.size() == 1 ? runs[0].name : format("{} runs", runs.size()), sections);
}

}  // namespace lockstep::report
