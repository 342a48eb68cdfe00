// Bars under one another, for a terminal.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "tools/plot/chart.h"
#include "tools/plot/look.h"
#include "tools/plot/stack.h"
#include "tools/plot/ticks.h"

namespace lockstep::plot {
namespace {

constexpr std::string_view kFills = "#=+-:.o*";
constexpr int kLeastBarsWidth = 30, kNumber = 9;

std::string filled(const std::string& text, size_t width) {
  auto cut = shortened(base::printable(text, 400), width);
  return cut + std::string(width - std::min(width, letters_of(cut)), ' ');
}

// Ends are rounded, not lengths: a stack is as long as its sum says.
std::string stack(const Bars& bars, size_t bar, double most, int columns) {
  std::string drawn;
  double sum = 0;
  for (size_t part = 0; part < bars.parts.size(); ++part) {
    sum += value_at(bars, bar, part);
    const auto end = static_cast<size_t>(std::lround(sum / most * columns));
    if (end > drawn.size()) drawn.append(end - drawn.size(), kFills[part % kFills.size()]);
  }
  return drawn + std::string(static_cast<size_t>(columns) - drawn.size(), ' ');
}

std::string trimmed(const std::string& line) {
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

}  // namespace

std::string text(const Bars& bars, int width) {
  width = std::max(width, kLeastBarsWidth);
  size_t longest = 1;
  double most = 0;
  for (size_t i = 0; i < bars.names.size(); ++i) {
    longest = std::max(longest, letters_of(base::printable(bars.names[i], 400)));
    most = std::max(most, height_of(bars, i));
  }
  longest = std::min(longest, static_cast<size_t>(width) / 3);
  const int columns = width - static_cast<int>(longest) - kNumber - 3;
  std::string out = trimmed(filled(bars.title, static_cast<size_t>(width)));
  for (size_t i = 0; bars.parts.size() > 1 && i < bars.parts.size(); ++i) {
    out += format("  {} ", kFills[i % kFills.size()]) +
           trimmed(filled(bars.parts[i], static_cast<size_t>(width) - 4));
  }
  if (!bars.y_label.empty()) out += trimmed(filled(without_unit(bars.y_label), static_cast<size_t>(width)));
  for (size_t i = 0; i < bars.names.size(); ++i) {
    out += trimmed(filled(bars.names[i], longest) + " |" + stack(bars, i, most > 0 ? most : 1, columns) +
                   " " + short_number(height_of(bars, i), unit_of(bars.y_label)));
  }
  return out;
}

}  // namespace lockstep::plot
