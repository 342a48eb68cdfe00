// Lines over a common x, for a terminal.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "tools/plot/all_values.h"
#include "tools/plot/chart.h"
#include "tools/plot/look.h"
#include "tools/plot/ticks.h"

namespace lockstep::plot {
namespace {

constexpr std::string_view kMarks = "*o+x#@%&=^$~";
constexpr int kRows = 16, kMargin = 10, kLeastChartWidth = 24;

char mark_of(const Chart& chart, size_t i) {
  return kMarks[look_of(chart.series[i].look, i) % kMarks.size()];
}

struct Canvas {
  Axis x, y;
  int columns;
  std::vector<std::string> rows;

  int column(double value) const { return static_cast<int>(std::lround(x.place(value) * (columns - 1))); }
  int row(double value) const { return static_cast<int>(std::lround((1 - y.place(value)) * (kRows - 1))); }
  void put(int column, int row, char mark) {
    rows[static_cast<size_t>(row)][static_cast<size_t>(column)] = mark;
  }
};

// Points that are neighbours are joined, so that few of them make a line as well.
void draw(Canvas& canvas, const Series& series, char mark) {
  int last_column = -1, last_row = 0;
  for (size_t i = 0; i < std::min(series.x.size(), series.y.size()); ++i) {
    if (!canvas.x.shows(series.x[i]) || !canvas.y.shows(series.y[i])) continue;
    const int column = canvas.column(series.x[i]), row = canvas.row(series.y[i]);
    for (int between = last_column + 1; last_column >= 0 && between < column; ++between) {
      const double part = static_cast<double>(between - last_column) / (column - last_column);
      if (!series.dashed || between % 3 == 0)
        canvas.put(between, static_cast<int>(std::lround(last_row + part * (row - last_row))), mark);
    }
    canvas.put(column, row, mark);
    last_column = column, last_row = row;
  }
}

// A line of few points is not hidden by one of many; of equals the first is in front.
std::vector<size_t> back_to_front(const Chart& chart) {
  std::vector<size_t> order;
  for (size_t i = 0; i < chart.series.size(); ++i) order.push_back(i);
  std::ranges::sort(order, std::greater(), [&](size_t i) { return std::pair(chart.series[i].x.size(), i); });
  return order;
}

std::string padded(const std::string& text, size_t width) {
  const auto letters = letters_of(text);
  return (letters < width ? std::string(width - letters, ' ') : "") + text;
}

std::string fit(const std::string& text, int width) {
  return shortened(base::printable(text, 400), static_cast<size_t>(width));
}

// What stands left of each row: the marks of the axis.
std::vector<std::string> left_labels(const Canvas& canvas) {
  std::vector<std::string> labels(kRows);
  for (const double tick : canvas.y.ticks()) {
    labels[static_cast<size_t>(canvas.row(tick))] = shortened(canvas.y.label(tick), kMargin - 2);
  }
  return labels;
}

std::string below(const Canvas& canvas) {
  std::string marks(static_cast<size_t>(canvas.columns), '-'),
      labels(static_cast<size_t>(canvas.columns), ' ');
  size_t free_from = 0;
  std::string text;
  for (const double tick : canvas.x.ticks()) {
    const auto column = static_cast<size_t>(canvas.column(tick));
    const auto label = canvas.x.label(tick);
    const size_t wide = letters_of(label), begin = column > wide / 2 ? column - wide / 2 : 0;
    marks[column] = '+';
    if (begin < free_from || begin + wide > static_cast<size_t>(canvas.columns)) continue;
    text += std::string(begin - (free_from ? free_from - 1 : 0), ' ') + label;
    free_from = begin + wide + 1;
  }
  return std::string(kMargin - 1, ' ') + "+" + marks + "\n" + std::string(kMargin, ' ') + text + "\n";
}

}  // namespace

std::string text(const Chart& chart, int width) {
  width = std::max(width, kLeastChartWidth);
  Canvas canvas = {Axis(all_values(chart, &Series::x), chart.log_x, unit_of(chart.x_label)),
                   Axis(y_values(chart), chart.log_y, unit_of(chart.y_label)),
                   width - kMargin,
                   {}};
  canvas.rows.assign(kRows, std::string(static_cast<size_t>(canvas.columns), ' '));
  for (const size_t i : back_to_front(chart)) draw(canvas, chart.series[i], mark_of(chart, i));
  std::string out = fit(chart.title, width) + "\n";
  for (size_t i = 0; i < chart.series.size(); ++i) {
    out += format("  {} ", mark_of(chart, i)) + fit(chart.series[i].name, width - 4) + "\n";
  }
  out += fit(without_unit(chart.y_label), width) + "\n";
  const auto labels = left_labels(canvas);
  for (size_t row = 0; row < canvas.rows.size(); ++row) {
    const auto end = canvas.rows[row].find_last_not_of(' ');
    out += padded(labels[row], kMargin - 2) + " |" + canvas.rows[row].substr(0, end + 1) + "\n";
  }
  return out + below(canvas) + padded(fit(without_unit(chart.x_label), width), static_cast<size_t>(width)) +
         "\n";
}

}  // namespace lockstep::plot
