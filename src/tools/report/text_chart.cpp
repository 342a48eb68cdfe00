// Charts and tables as text, for a terminal.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "tools/report/numbers.h"
#include "tools/report/page.h"

namespace lockstep::report {
namespace {

constexpr size_t kWidth = 78, kMargin = 10;
constexpr int kRows = 16, kLabelEvery = 5;
constexpr std::string_view kMarks = "*o+x#@%&=^$~", kFills = "#=+-:.o*";

std::string fit(const std::string& text, size_t width) {
  auto cut = base::printable(text, 400);
  if (base::letters(cut) <= width) return cut;
  while (base::letters(cut) > width - 2) cut.pop_back();
  return cut + "..";
}

std::string left_of(const std::string& text, size_t width) {
  return text + std::string(width - std::min(width, base::letters(text)), ' ');
}

std::string right_of(const std::string& text, size_t width) {
  return std::string(width - std::min(width, base::letters(text)), ' ') + text;
}

std::string trimmed(const std::string& line) {
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

// From the least value to the largest.
class TextAxis {
 public:
  TextAxis(const Chart& chart, std::vector<double> Series::*values, bool log) : log_(log) {
    for (const auto& series : chart.series) {
      for (const double value : series.*values) {
        if (!shows(value)) continue;
        low_ = std::min(low_, scaled(value)), high_ = std::max(high_, scaled(value));
      }
    }
    if (low_ > high_) low_ = 0, high_ = 1;
    const double half = std::max(0.5, std::abs(high_) / 10);
    if (high_ - low_ <= 1e-9 * std::abs(high_)) low_ -= half, high_ += half;
  }
  bool shows(double value) const { return std::abs(value) < 1e300 && (!log_ || value > 0); }
  int place(double value, int last) const {
    return static_cast<int>(std::lround((scaled(value) - low_) / (high_ - low_) * last));
  }
  double value_at(double part) const {
    const double value = low_ + part * (high_ - low_);
    return log_ ? std::pow(10, value) : value;
  }

 private:
  double scaled(double value) const { return log_ ? std::log10(value) : value; }

  bool log_;
  double low_ = std::numeric_limits<double>::max(), high_ = -low_;
};

// Neighbouring points are joined; of a dashed line only some letters are drawn.
void draw(std::vector<std::string>& rows, const Series& series, const TextAxis& x, const TextAxis& y,
          char mark) {
  const int columns = static_cast<int>(rows[0].size());
  int last_column = -1, last_row = 0;
  for (size_t i = 0; i < std::min(series.x.size(), series.y.size()); ++i) {
    if (!x.shows(series.x[i]) || !y.shows(series.y[i])) continue;
    const int column = x.place(series.x[i], columns - 1), row = kRows - 1 - y.place(series.y[i], kRows - 1);
    for (int at = last_column + 1; last_column >= 0 && at < column; ++at) {
      const double part = static_cast<double>(at - last_column) / (column - last_column);
      const auto between = static_cast<size_t>(std::lround(last_row + part * (row - last_row)));
      if (!series.dashed || at % 3 == 0) rows[between][static_cast<size_t>(at)] = mark;
    }
    rows[static_cast<size_t>(row)][static_cast<size_t>(column)] = mark;
    last_column = column, last_row = row;
  }
}

double height_of(const std::vector<double>& values, size_t parts) {
  double sum = 0;
  for (size_t i = 0; i < std::min(parts, values.size()); ++i) sum += values[i] > 0 ? values[i] : 0;
  return sum;
}

// Ends are rounded, not lengths, so that a stack is as long as its sum.
std::string stack(const std::vector<double>& values, size_t parts, double most, size_t columns) {
  std::string drawn;
  for (size_t part = 0; part < parts; ++part) {
    const auto end =
        static_cast<size_t>(std::lround(height_of(values, part + 1) / most * static_cast<double>(columns)));
    if (end > drawn.size()) drawn.append(end - drawn.size(), kFills[part % kFills.size()]);
  }
  return drawn;
}

}  // namespace

std::string aligned(const Table& rows) {
  std::vector<size_t> widths(rows.at(0).size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], base::letters(row[i]));
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += i == 0 ? left_of(row[i], widths[i]) : "  " + right_of(row[i], widths[i]);
    text += trimmed(line);
  }
  return text;
}

std::string text_chart(const Chart& chart) {
  const TextAxis x(chart, &Series::x, chart.log_x), y(chart, &Series::y, chart.log_y);
  std::vector<std::string> rows(kRows, std::string(kWidth - kMargin, ' '));
  const auto mark_of = [&](size_t i) {
    const int look = chart.series[i].look;
    return kMarks[(look < 0 ? i : static_cast<size_t>(look)) % kMarks.size()];
  };
  for (size_t i = chart.series.size(); i-- > 0;) draw(rows, chart.series[i], x, y, mark_of(i));
  auto text = fit(chart.title, kWidth) + "\n";
  for (size_t i = 0; i < chart.series.size(); ++i)
    text += format("  {} ", mark_of(i)) + fit(chart.series[i].name, kWidth - 4) + "\n";
  text += fit(without_unit(chart.y_label), kWidth) + "\n";
  for (int row = 0; row < kRows; ++row) {
    const auto label = row % kLabelEvery
                           ? ""
                           : axis_text(y.value_at(1 - static_cast<double>(row) / (kRows - 1)), chart.y_label);
    text += right_of(label, kMargin - 2) + " |" + trimmed(rows[static_cast<size_t>(row)]);
  }
  const auto first = axis_text(x.value_at(0), chart.x_label), last = axis_text(x.value_at(1), chart.x_label);
  return text + std::string(kMargin - 1, ' ') + "+" + std::string(kWidth - kMargin, '-') + "\n" +
         std::string(kMargin, ' ') + first + right_of(last, kWidth - kMargin - base::letters(first)) + "\n" +
         right_of(fit(without_unit(chart.x_label), kWidth), kWidth) + "\n";
}

std::string text_chart(const Bars& bars) {
  constexpr size_t kNumber = 9;
  const size_t parts = bars.parts.size();
  size_t longest = 1;
  double most = 0;
  for (size_t i = 0; i < bars.names.size(); ++i) {
    longest = std::max(longest, std::min(base::letters(base::printable(bars.names[i], 400)), kWidth / 3));
    most = std::max(most, height_of(bars.values[i], parts));
  }
  auto text = fit(bars.title, kWidth) + "\n";
  for (size_t i = 0; parts > 1 && i < parts; ++i)
    text += format("  {} ", kFills[i % kFills.size()]) + fit(bars.parts[i], kWidth - 4) + "\n";
  text += fit(without_unit(bars.y_label), kWidth) + "\n";
  for (size_t i = 0; i < bars.names.size(); ++i) {
    const size_t columns = kWidth - longest - kNumber - 3;
    text += left_of(fit(bars.names[i], longest), longest) + " |" +
            left_of(stack(bars.values[i], parts, most > 0 ? most : 1, columns), columns) + " " +
            axis_text(height_of(bars.values[i], parts), bars.y_label) + "\n";
  }
  return text;
}

}  // namespace lockstep::report
