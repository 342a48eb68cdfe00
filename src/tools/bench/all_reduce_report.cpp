#include "tools/bench/all_reduce_report.h"

#include <cstdio>

#include "lockstep/base/format.h"
#include "tools/bench/report.h"
#include "tools/bench/units.h"
#include "tools/plot/pictures.h"

namespace lockstep::bench {
namespace {

std::vector<TimeCurve> measured_curves(const AllReduceFound& found, bool algorithms_alone) {
  std::vector<TimeCurve> curves;
  for (size_t i = 0; i < found.rows.size(); ++i) {
    const auto& row = found.rows[i];
    if (row.algorithm || !algorithms_alone)
      curves.push_back({row.name, row.seconds, false, static_cast<int>(i)});
  }
  return curves;
}

std::vector<TimeCurve> modelled(const AllReduceFound& found, const std::string& suffix) {
  std::vector<TimeCurve> curves;
  for (size_t i = 0; i < found.rows.size(); ++i) {
    const auto& row = found.rows[i];
    if (!row.algorithm) continue;
    TimeCurve curve{row.name + suffix, {}, true, static_cast<int>(i)};
    for (const auto size : found.asked.sizes)
      curve.seconds.push_back(row.algorithm->seconds(found.ranks, static_cast<double>(size), found.network));
    curves.push_back(std::move(curve));
  }
  return curves;
}

std::vector<TimeCurve> with_models(std::vector<TimeCurve> curves, const AllReduceFound& found) {
  for (auto& model : modelled(found, " (model)")) curves.push_back(std::move(model));
  return curves;
}

bool is_slowed(const AllReduceFound& found) {
  return found.asked.latency > 0 || found.asked.bandwidth > 0;
}

std::string setting(const AllReduceFound& found) {
  const auto& [asked, ranks, net, rows, notes, caution] = found;
  auto text = format(
      "{} ranks on {} node{}; the algorithms over {}: alpha {}, beta {:.3f} ns a byte, gamma "
      "{:.3f} ns a byte",
      ranks.world, ranks.nodes, ranks.nodes == 1 ? "" : "s", asked.backend, seconds_text(net.alpha),
      net.beta * 1e9, net.gamma * 1e9);
  if (is_slowed(found))
    text += "; simulated slow network (gloo, MPI and NCCL are not): " +
            delay_text(asked.latency, asked.bandwidth);
  return text;
}

Table formulas(const AllReduceFound& found) {
  Table table = {{"algorithm", "what it does", "seconds"}};
  for (const auto& row : found.rows)
    if (row.algorithm) table.push_back({row.name, row.algorithm->summary, row.algorithm->formula});
  return table;
}

std::string paragraph(const std::string& text) {
  return "<p>" + plot::escaped(text) + "</p>";
}

// Lines that stand for more say so.
plot::Chart titled(plot::Chart chart, const std::vector<TimeCurve>& few, const std::vector<TimeCurve>& all,
                   const std::vector<int64_t>& sizes) {
  if (few.size() < all.size())
    chart.title +=
        format(", the {} fastest at {}", few.size(), bytes_text(static_cast<double>(sizes.back())));
  return chart;
}

std::vector<plot::Draw> one_by_one(const std::vector<int64_t>& sizes, const std::vector<TimeCurve>& curves) {
  std::vector<plot::Draw> cards;
  for (auto& chart : charts_one_by_one(sizes, curves)) cards.push_back(plot::drawn(std::move(chart)));
  return cards;
}

}  // namespace

void tell(const AllReduceFound& found) {
  const auto& sizes = found.asked.sizes;
  const auto all = measured_curves(found, false), own = measured_curves(found, true), few = fastest_few(all);
  const auto table = table_of(sizes, with_models(all, found));
  const auto caution = found.caution.empty() ? "" : found.caution + "\n";
  const auto times = titled(time_chart(sizes, few), few, all, sizes);
  const auto bandwidths = titled(bandwidth_chart(sizes, few, found.ranks.world), few, all, sizes);
  const auto wins = "fastest algorithm, measured: " + crossovers(sizes, own);
  const auto should_win = "fastest algorithm, by the model: " + crossovers(sizes, modelled(found, ""));
  auto text = setting(found) + "\n";
  for (const auto& note : found.notes) text += note + "\n";
  text += format("every sum was checked; medians of {}, the slowest rank's time\n\n", found.asked.rounds);
  text += aligned(table) + caution + "\n" + aligned(ratio_table(sizes, all)) + "\n" + wins + "\n" +
          should_win + "\n\n" + plot::text(times) + "\n" + plot::text(bandwidths);
  std::fputs(text.c_str(), stdout);
  write_out(
      found.asked.out, "lockstep bench allreduce",
      {{"Time and bus bandwidth",
        paragraph(setting(found)) + plot::pictures({plot::drawn(times), plot::drawn(bandwidths)})},
       {"Who wins where", paragraph(wins) + paragraph(should_win) + plot::table(ratio_table(sizes, all))},
       {"Way by way", plot::pictures(one_by_one(sizes, with_models(all, found)))},
       {"The numbers", plot::table(table) + (caution.empty() ? "" : paragraph(caution))},
       {"What each costs", plot::table(formulas(found))}},
      plot::svg(is_slowed(found) ? time_chart(sizes, own) : times));
}

}  // namespace lockstep::bench
