// Where each rank's time went, as stacked bars.
#include "lockstep/base/format.h"
#include "tools/plot/pictures.h"
#include "tools/report/parts.h"

namespace lockstep::report {
namespace {

// Of the newest attempt that came to it.
plot::Bars bars_of(const RunData& run) {
  plot::Bars bars;
  for (const auto& attempt : list(run.facts, "attempts")) {
    const auto& measured = at(attempt, "phases");
    if (list(measured, "ranks").empty()) continue;
    bars = {format("{}: where the time of attempt {:.0f} went", run.name, number(attempt, "number")),
            "time (s)",
            {},
            {},
            {}};
    for (const auto& name : list(measured, "names"))
      bars.parts.push_back(name.is_string() ? name.get<std::string>() : "");
    for (const auto& rank : list(measured, "ranks")) {
      bars.names.push_back(format("rank {}", bars.names.size()));
      bars.values.emplace_back();
      for (size_t i = 0; rank.is_array() && i < rank.size(); ++i)
        bars.values.back().push_back(rank[i].is_number() ? rank[i].get<double>() : 0);
    }
  }
  return bars;
}

}  // namespace

std::string phases(const Runs& runs) {
  std::vector<plot::Draw> cards;
  for (const auto& run : runs) {
    auto bars = bars_of(run);
    if (!bars.names.empty()) cards.push_back(plot::drawn(std::move(bars)));
  }
  return plot::pictures(cards);
}

}  // namespace lockstep::report
