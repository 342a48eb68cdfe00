#include "tools/report/page.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "tools/report/page_html.inc"

namespace lockstep::report {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostPoints = 2000;  // of a curve

// The points that can be drawn; of very many, in each group the first, the lowest, the highest and the last.
std::vector<size_t> kept_points(const Series& series) {
  std::vector<size_t> points, kept;
  for (size_t i = 0; i < std::min(series.x.size(), series.y.size()); ++i) {
    if (std::isfinite(series.x[i]) && std::isfinite(series.y[i])) points.push_back(i);
  }
  if (points.size() <= kMostPoints) return points;
  const auto group = static_cast<std::ptrdiff_t>((4 * points.size() + kMostPoints - 1) / kMostPoints);
  for (auto first = points.begin(); first != points.end();) {
    const auto last = first + std::min(group, points.end() - first);
    const auto [low, high] = std::minmax_element(
        first, last, [&](size_t left, size_t right) { return series.y[left] < series.y[right]; });
    std::vector<size_t> ends = {*first, *low, *high, *(last - 1)};
    std::ranges::sort(ends);
    std::ranges::unique_copy(ends, std::back_inserter(kept));
    first = last;
  }
  return kept;
}

// Seven digits are more than a picture shows.
double shortened(double value) {
  return std::strtod(format("{:.7g}", value).c_str(), nullptr);
}

// Escape codes and invalid UTF-8 become visible. Pixels are digits alone, in a longer line than readable()
// keeps.
ordered_json readable(const ordered_json& value) {
  if (value.is_string()) return base::readable(value.get_ref<const std::string&>());
  ordered_json copy = value;
  if (value.is_array()) {
    for (auto& item : copy) item = readable(item);
  } else if (value.is_object()) {
    for (const auto& [key, item] : value.items())
      if (key != "pixels") copy[key] = readable(item);
  }
  return copy;
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char letter : base::readable(text)) {
    switch (letter) {
      case '<':
        safe += "&lt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      default:
        safe += letter;
    }
  }
  return safe;
}

// Nothing in a string can end the script element.
std::string json_in_html(const ordered_json& json) {
  std::string safe;
  for (const char letter : base::as_line(json)) letter == '<' ? safe += "\\u003c" : safe += letter;
  return safe;
}

// --- as text ---

constexpr size_t kWidth = 78;
constexpr std::string_view kFills = "#=+-:.o*";

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

// --- numbers ---

struct Unit {
  double size;
  const char* name;
};

// `units` begins with the largest; what is smaller than all of them has the last.
std::string scaled(double value, std::initializer_list<Unit> units) {
  if (!std::isfinite(value)) return "–";
  auto unit = units.begin();
  while (unit + 1 != units.end() && std::abs(value) * 1.0005 < unit->size) ++unit;
  const double number = value / unit->size;
  const bool whole = std::abs(number) >= 100 && std::abs(number) < 1e6;
  return (whole ? format("{:.0f}", number) : format("{:.3g}", number)) + unit->name;
}

bool has_unit(const std::string& label, const std::string& unit) {
  return label == unit || label.ends_with("(" + unit + ")");
}

}  // namespace

ordered_json chart_json(const Chart& chart) {
  ordered_json json = {{"title", chart.title}, {"x_label", chart.x_label}, {"y_label", chart.y_label},
                       {"log_x", chart.log_x}, {"log_y", chart.log_y},     {"series", ordered_json::array()}};
  for (const auto& series : chart.series) {
    ordered_json line = {{"name", series.name},
                         {"dashed", series.dashed},
                         {"x", ordered_json::array()},
                         {"y", ordered_json::array()}};
    if (series.look >= 0) line["look"] = series.look;
    for (const size_t i : kept_points(series)) {
      line["x"].push_back(series.x[i]);
      line["y"].push_back(shortened(series.y[i]));
    }
    json["series"].push_back(std::move(line));
  }
  return json;
}

void Page::section(const std::string& heading) {
  heading_ = text_.empty() ? "" : "\n" + heading + "\n";
  sections_.push_back({{"heading", heading}, {"items", ordered_json::array()}});
}

void Page::add(const char* kind, ordered_json value) {
  sections_.back()["items"].push_back({{kind, std::move(value)}});
}

void Page::print(const std::string& text) {
  text_ += std::exchange(heading_, "") + text;
}

void Page::text(const std::string& text) {
  print(text + "\n");
  add("text", text);
}

void Page::note(const std::string& text) {
  print(text + "\n");
  add("note", text);
}

void Page::table(const Table& rows) {
  print(aligned(rows));
  add("table", rows);
}

void Page::chart(const Chart& chart) {
  add("chart", chart_json(chart));
}

void Page::bars(const Bars& bars) {
  print("\n" + text_bars(bars));
  add("bars", {{"title", bars.title},
               {"y_label", bars.y_label},
               {"names", bars.names},
               {"parts", bars.parts},
               {"values", bars.values}});
}

std::string Page::html() const {
  const std::pair<std::string_view, std::string> values[] = {
      {"{{title}}", escaped(title_)},
      {"{{text}}", escaped(text_)},
      {"{{data}}", json_in_html(readable({{"sections", sections_}}))}};
  std::string html;
  std::string_view rest = kPageHtml;
  for (auto at = rest.find("{{"); at != std::string_view::npos; at = rest.find("{{")) {
    html += rest.substr(0, at);
    rest.remove_prefix(at);
    const auto* value =
        std::ranges::find_if(values, [&](const auto& one) { return rest.starts_with(one.first); });
    html += value == std::end(values) ? "{{" : value->second;
    rest.remove_prefix(value == std::end(values) ? 2 : value->first.size());
  }
  return html += rest;
}

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

std::string text_bars(const Bars& bars) {
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

std::string number_text(double value) {
  return scaled(value, {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}});
}

std::string bytes_text(double bytes) {
  return scaled(bytes, {{0x1p40, " TiB"}, {0x1p30, " GiB"}, {0x1p20, " MiB"}, {1024, " KiB"}, {1, " B"}});
}

std::string seconds_text(double seconds) {
  if (seconds == 0) return "0 s";
  return scaled(seconds, {{3600, " h"}, {60, " min"}, {1, " s"}, {1e-3, " ms"}, {1e-6, " us"}});
}

std::string decimal_bytes_text(double bytes) {
  return scaled(bytes, {{1e9, " GB"}, {1e6, " MB"}, {1e3, " kB"}, {1, " B"}});
}

std::string work_text(double operations) {
  return scaled(operations,
                {{1e12, " TFLOP"}, {1e9, " GFLOP"}, {1e6, " MFLOP"}, {1e3, " kFLOP"}, {1, " FLOP"}});
}

std::string percent_text(double share) {
  return share > 0 ? format("{:.0f} %", 100 * share) : "-";
}

std::string axis_text(double value, const std::string& label) {
  if (has_unit(label, "bytes")) return bytes_text(value);
  return has_unit(label, "s") ? seconds_text(value) : number_text(value);
}

std::string without_unit(const std::string& label) {
  return has_unit(label, "bytes") || has_unit(label, "s") ? label.substr(0, label.rfind(" (")) : label;
}

}  // namespace lockstep::report
