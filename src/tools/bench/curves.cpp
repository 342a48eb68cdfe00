#include "tools/bench/curves.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/format.h"
#include "tools/bench/units.h"
#include "tools/plot/all_values.h"

namespace lockstep::bench {
namespace {

const TimeCurve& fastest(const std::vector<TimeCurve>& curves, size_t size) {
  const auto faster = [size](const TimeCurve& a, const TimeCurve& b) {
    return a.seconds[size] < b.seconds[size];
  };
  return *std::min_element(curves.begin(), curves.end(), faster);
}

std::string microseconds(double seconds) {
  const double value = seconds * 1e6;
  return format("{:.{}f}", value, value >= 100 ? 0 : 1);
}

template <class Value>
plot::Chart chart_of(const std::vector<int64_t>& sizes, const std::vector<TimeCurve>& curves, Value&& value) {
  plot::Chart chart;
  chart.x_label = "bytes";
  chart.log_x = chart.log_y = true;
  for (const auto& curve : curves) {
    plot::Series series;
    series.name = curve.name;
    series.dashed = curve.is_model;
    series.look = curve.look;
    for (size_t i = 0; i < sizes.size(); ++i) {
      series.x.push_back(static_cast<double>(sizes[i]));
      series.y.push_back(value(series.x.back(), curve.seconds[i]));
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

}  // namespace

std::string crossovers(const std::vector<int64_t>& sizes, const std::vector<TimeCurve>& curves) {
  std::string text;
  for (size_t i = 0; i < sizes.size() && !curves.empty(); ++i) {
    const auto& name = fastest(curves, i).name;
    const bool last = i + 1 == sizes.size();
    if (!last && fastest(curves, i + 1).name == name) continue;
    text += (text.empty() ? "" : ", then ") + name;
    if (!last) text += " up to " + bytes_text(static_cast<double>(sizes[i]));
  }
  return text;
}

Table table_of(const std::vector<int64_t>& sizes, const std::vector<TimeCurve>& curves) {
  Table table = {{"microseconds"}};
  for (const auto size : sizes) table[0].push_back(bytes_text(static_cast<double>(size)));
  for (const auto& curve : curves) {
    table.push_back({curve.name});
    for (const auto seconds : curve.seconds) table.back().push_back(microseconds(seconds));
  }
  return table;
}

Table ratio_table(const std::vector<int64_t>& sizes, const std::vector<TimeCurve>& curves) {
  Table table = {{"times the fastest"}};
  for (const auto size : sizes) table[0].push_back(bytes_text(static_cast<double>(size)));
  for (const auto& curve : curves) {
    table.push_back({curve.name});
    for (size_t i = 0; i < sizes.size(); ++i) {
      const double ratio = curve.seconds[i] / fastest(curves, i).seconds[i];
      table.back().push_back(format("{:.{}f}", ratio, ratio < 10 ? 1 : 0));
    }
  }
  return table;
}

std::string aligned(const Table& table) {
  std::vector<size_t> widths(table.at(0).size());
  for (const auto& row : table)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : table) {
    for (size_t i = 0; i < row.size(); ++i)
      text += i == 0 ? format("{:<{}}", row[i], widths[i]) : format("  {:>{}}", row[i], widths[i]);
    text += "\n";
  }
  return text;
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

plot::Chart time_chart(const std::vector<int64_t>& sizes, const std::vector<TimeCurve>& curves) {
  auto chart = chart_of(sizes, curves, [](double, double seconds) { return seconds * 1e6; });
  chart.title = "All-reduce: time over size";
  chart.y_label = "microseconds";
  return chart;
}

std::vector<plot::Chart> charts_one_by_one(const std::vector<int64_t>& sizes,
                                           const std::vector<TimeCurve>& curves) {
  const auto whole = time_chart(sizes, curves);
  std::vector<plot::Chart> charts;
  for (const auto& curve : curves) {
    if (curve.is_model) continue;
    auto chart = whole;
    chart.title = curve.name;
    chart.also = plot::all_values(whole, &plot::Series::y);
    chart.series.clear();
    const char* others = "the others";
    for (size_t i = 0; i < curves.size(); ++i) {
      const bool own = curves[i].look == curve.look, model = curves[i].is_model;
      if (!own && model) continue;
      auto series = whole.series[i];
      series.name = own ? model ? "by the model" : "measured" : std::exchange(others, "");
      series.look = model ? 1 : 0;
      series.faint = !own;
      chart.series.push_back(std::move(series));
    }
    charts.push_back(std::move(chart));
  }
  return charts;
}

plot::Chart bandwidth_chart(const std::vector<int64_t>& sizes, const std::vector<TimeCurve>& curves,
                            int world) {
  const double least = 2.0 * (world - 1) / world;
  auto chart = chart_of(sizes, curves,
                        [least](double bytes, double seconds) { return least * bytes / seconds / 1e6; });
  chart.title = "All-reduce: bus bandwidth over size";
  chart.y_label = "MB/s";
  return chart;
}

}  // namespace lockstep::bench
