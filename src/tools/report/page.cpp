#include "tools/report/page.h"

#include <algorithm>
#include <cmath>
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

bool is_hexadecimal(const ordered_json& value) {
  return value.is_string() &&
         value.get_ref<const std::string&>().find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Escape codes and invalid UTF-8 become visible. Pixels are a longer line than base::readable() keeps.
ordered_json readable(const ordered_json& value) {
  if (value.is_string()) return base::readable(value.get_ref<const std::string&>());
  if (value.is_object()) {
    ordered_json::object_t object;  // emplace_back() looks for no equal name
    for (const auto& [key, item] : value.items())
      object.emplace_back(base::readable(key),
                          key == "pixels" && is_hexadecimal(item) ? item : readable(item));
    return object;
  }
  ordered_json copy = value;
  if (value.is_array())
    for (auto& item : copy) item = readable(item);
  return copy;
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char letter : base::readable(text))
    safe += letter == '<' ? "&lt;" : letter == '&' ? "&amp;" : std::string(1, letter);
  return safe;
}

// Nothing in a string can end the script element.
std::string json_in_html(const ordered_json& json) {
  std::string safe;
  for (const char letter : base::as_line(json)) letter == '<' ? safe += "\\u003c" : safe += letter;
  return safe;
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

}  // namespace

void Page::section(const std::string& heading) {
  heading_ = text_.empty() ? "" : "\n" + heading + "\n";
  next_ = heading;
}

void Page::add(const char* kind, ordered_json value) {
  if (next_) sections_.push_back({{"heading", *std::exchange(next_, std::nullopt)}});
  sections_.back()["items"].push_back({{kind, std::move(value)}});
}

void Page::text(const std::string& text, const char* kind) {
  text_ += std::exchange(heading_, "") + text + "\n";
  add(kind, text);
}

void Page::table(const Table& rows) {
  text_ += std::exchange(heading_, "") + aligned(rows);
  add("table", rows);
}

void Page::bars(const std::string& title, const std::string& y_label, const std::vector<std::string>& parts,
                const std::vector<Bar>& bars) {
  ordered_json json = {{"title", title}, {"y_label", y_label}, {"parts", parts}};
  for (const auto& [name, values] : bars) {
    json["names"].push_back(name);
    json["values"].push_back(values);
  }
  add("bars", std::move(json));
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

Table transposed(const Table& rows) {
  Table transposed(rows.at(0).size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) transposed[i].push_back(row[i]);
  return transposed;
}

std::string aligned(const Table& rows) {
  std::vector<size_t> widths(rows.at(0).size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], base::letters(row[i]));
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string blanks(widths[i] - base::letters(row[i]), ' ');
      line += i == 0 ? row[i] + blanks : "  " + blanks + row[i];
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string bytes_text(double bytes) {
  return scaled(bytes, {{0x1p40, " TiB"}, {0x1p30, " GiB"}, {0x1p20, " MiB"}, {1024, " KiB"}, {1, " B"}});
}

std::string seconds_text(double seconds) {
  if (seconds == 0) return "0 s";
  return scaled(seconds, {{3600, " h"}, {60, " min"}, {1, " s"}, {1e-3, " ms"}, {1e-6, " us"}});
}

std::string work_text(double operations) {
  return scaled(operations,
                {{1e12, " TFLOP"}, {1e9, " GFLOP"}, {1e6, " MFLOP"}, {1e3, " kFLOP"}, {1, " FLOP"}});
}

std::string percent_text(double share) {
  return share > 0 ? format("{:.0f} %", 100 * share) : "-";
}

}  // namespace lockstep::report
