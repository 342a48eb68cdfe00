#include "tools/bench/all_reduce_report.h"

#include <algorithm>

#include "lockstep/base/format.h"
#include "tools/bench/measure.h"
#include "tools/report/numbers.h"

namespace lockstep::bench {
namespace {

using report::Chart;
using report::Table;
using Sizes = std::vector<int64_t>;

const TimeCurve& fastest(const std::vector<TimeCurve>& curves, size_t size) {
  return *std::ranges::min_element(curves, {},
                                   [size](const TimeCurve& curve) { return curve.seconds[size]; });
}

std::string size_text(int64_t size) {
  return report::bytes_text(static_cast<double>(size));
}

// A row for each curve, a column for each size; text(curve, i) is a cell.
template <class Text>
Table table_by_size(const std::string& head, const Sizes& sizes, const std::vector<TimeCurve>& curves,
                    const Text& text) {
  Table table = {{head}};
  for (const auto size : sizes) table[0].push_back(size_text(size));
  for (const auto& curve : curves) {
    table.push_back({curve.name});
    for (size_t i = 0; i < sizes.size(); ++i) table.back().push_back(text(curve, i));
  }
  return table;
}

template <class Value>
Chart chart_by_size(const std::string& title, const std::string& y_label, const Sizes& sizes,
                    const std::vector<TimeCurve>& curves, const Value& value) {
  Chart chart = {.title = title,
                 .x_label = "message (bytes)",
                 .y_label = y_label,
                 .series = {},
                 .log_x = true,
                 .log_y = true};
  for (const auto& curve : curves) {
    report::Series series = {curve.name, {}, {}, curve.is_model, curve.look};
    for (size_t i = 0; i < sizes.size(); ++i) {
      series.x.push_back(static_cast<double>(sizes[i]));
      series.y.push_back(value(series.x.back(), curve.seconds[i]));
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

Chart time_chart(const Sizes& sizes, const std::vector<TimeCurve>& curves) {
  return chart_by_size("All-reduce: time over size", "time (s)", sizes, curves,
                       [](double /*bytes*/, double seconds) { return seconds; });
}

// `of_all`: the libraries' rows too, not the algorithms alone.
std::vector<TimeCurve> measured_curves(const AllReduceFound& found, bool of_all) {
  std::vector<TimeCurve> curves;
  for (size_t i = 0; i < found.rows.size(); ++i) {
    const auto& row = found.rows[i];
    if (row.algorithm || of_all) curves.push_back({row.name, row.seconds, false, static_cast<int>(i)});
  }
  return curves;
}

std::vector<TimeCurve> modelled_curves(const AllReduceFound& found) {
  std::vector<TimeCurve> curves;
  for (size_t i = 0; i < found.rows.size(); ++i) {
    const auto& row = found.rows[i];
    if (!row.algorithm) continue;
    TimeCurve curve{row.name, {}, true, static_cast<int>(i)};
    for (const auto size : found.asked.sizes)
      curve.seconds.push_back(row.algorithm->seconds(found.ranks, static_cast<double>(size), found.network));
    curves.push_back(std::move(curve));
  }
  return curves;
}

std::string setting(const AllReduceFound& found) {
  const auto& [asked, ranks, net, rows, notes, caution] = found;
  auto text = format(
      "{} ranks on {} node{}; the algorithms over {}: alpha {}, beta {:.3f} ns a byte, gamma {:.3f} ns a "
      "byte",
      ranks.world, ranks.nodes, ranks.nodes == 1 ? "" : "s", asked.backend, report::seconds_text(net.alpha),
      net.beta * 1e9, net.gamma * 1e9);
  if (asked.latency > 0 || asked.bandwidth > 0)
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

}  // namespace

std::string crossovers(const Sizes& sizes, const std::vector<TimeCurve>& curves) {
  std::string text;
  for (size_t i = 0; i < sizes.size() && !curves.empty(); ++i) {
    const auto& name = fastest(curves, i).name;
    const bool last = i + 1 == sizes.size();
    if (!last && fastest(curves, i + 1).name == name) continue;
    text += (text.empty() ? "" : ", then ") + name;
    if (!last) text += " up to " + size_text(sizes[i]);
  }
  return text;
}

Table ratio_table(const Sizes& sizes, const std::vector<TimeCurve>& curves) {
  return table_by_size("times the fastest", sizes, curves, [&](const TimeCurve& curve, size_t i) {
    const double ratio = curve.seconds[i] / fastest(curves, i).seconds[i];
    return format("{:.{}f}", ratio, ratio < 10 ? 1 : 0);
  });
}

std::vector<TimeCurve> fastest_few(const std::vector<TimeCurve>& curves) {
  if (curves.size() <= kFewCurves) return curves;
  std::vector<double> times;
  for (const auto& curve : curves) times.push_back(curve.seconds.back());
  std::ranges::sort(times);
  std::vector<TimeCurve> few;
  for (const auto& curve : curves) {
    if (few.size() < kFewCurves && curve.seconds.back() <= times[kFewCurves - 1]) few.push_back(curve);
  }
  return few;
}

Chart bandwidth_chart(const Sizes& sizes, const std::vector<TimeCurve>& curves, int world) {
  const double least = 2.0 * (world - 1) / world;
  return chart_by_size("All-reduce: bus bandwidth over size", "MB/s", sizes, curves,
                       [least](double bytes, double seconds) { return least * bytes / seconds / 1e6; });
}

report::Page page_of(const AllReduceFound& found) {
  const auto& sizes = found.asked.sizes;
  const auto all = measured_curves(found, true), own = measured_curves(found, false), few = fastest_few(all);
  const auto models = modelled_curves(found);
  auto with_models = all;
  for (auto model : models) {
    model.name += " (model)";
    with_models.push_back(std::move(model));
  }
  auto times = time_chart(sizes, few), bandwidths = bandwidth_chart(sizes, few, found.ranks.world);
  for (auto* chart : {&times, &bandwidths})
    if (few.size() < all.size())
      chart->title += format(", the {} fastest at {}", few.size(), size_text(sizes.back()));

  report::Page page("lockstep bench allreduce");
  page.section("Time and bus bandwidth");
  page.text(setting(found));
  for (const auto& note : found.notes) page.note(note);
  page.note(format("every sum was checked; medians of {}, the slowest rank's time", found.asked.rounds));
  page.chart(times);
  page.chart(bandwidths);
  page.section("The numbers");
  page.table(table_by_size("microseconds", sizes, with_models, [](const TimeCurve& curve, size_t i) {
    const double value = curve.seconds[i] * 1e6;
    return format("{:.{}f}", value, value >= 100 ? 0 : 1);
  }));
  if (!found.caution.empty()) page.text(found.caution);
  page.section("Who wins where");
  page.table(ratio_table(sizes, all));
  page.text("fastest algorithm, measured: " + crossovers(sizes, own));
  page.text("fastest algorithm, by the model: " + crossovers(sizes, models));
  page.section("Way by way");
  page.add("one_by_one", report::chart_json(time_chart(sizes, with_models)));
  page.section("What each costs");
  page.add("table", formulas(found));
  return page;
}

}  // namespace lockstep::bench
