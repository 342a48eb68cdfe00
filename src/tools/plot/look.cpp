#include "tools/plot/look.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "lockstep/base/format.h"
#include "tools/plot/page.h"

namespace lockstep::plot {
namespace {

// From the hues of Okabe and Ito (2008), moved until each two are far apart for every kind of eye
// (tests/plot/look_test.cpp).
constexpr std::array<const char*, 8> kLight = {"#0d56a1", "#b34c0f", "#249f83", "#723364",
                                               "#ba8600", "#7d65d8", "#6b6b6b", "#832f00"};
constexpr std::array<const char*, 8> kDark = {"#42b5ff", "#d6660b", "#0ce7ba", "#e180c3",
                                              "#eab924", "#8b77fc", "#808080", "#c3a175"};

std::string colours(const std::array<const char*, 8>& row, const char* others) {
  std::string css = others;
  for (size_t i = 0; i < row.size(); ++i) css += format("--ls{}:{};", i, row[i]);
  return css;
}

std::string style() {
  return "<style>svg.ls:root{background:var(--paper);" + light_colours() +
         "}@media(prefers-color-scheme:dark){svg.ls:root{" + dark_colours() +
         "}}"
         ".ls text{font:12px system-ui,-apple-system,'Segoe "
         "UI',Roboto,sans-serif;fill:var(--soft,currentColor)}"
         ".ls .t{font-size:14px;font-weight:600;fill:var(--ink,currentColor)}"
         ".ls .g{stroke:var(--line,#8884);stroke-width:1}"
         ".ls .c{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}"
         ".ls .d{stroke-dasharray:6 5;stroke-width:1.6}"
         ".ls .o{stroke-dasharray:.1 5;stroke-width:3}"
         ".ls .f{stroke:var(--soft,currentColor);stroke-width:1;opacity:.4}</style>";
}

constexpr double kRow = 18, kSwatch = 22, kBetween = 14;

// Of 12 high sans-serif, wide rather than narrow: which one a reader has is not known.
struct Letters {
  std::string_view letters;
  double wide;
};
constexpr Letters kLetters[] = {{"ijlI.,:;'|! ", 4.2}, {"frt()[]{}-/\\\"", 5.2}, {"mwMW@%", 11.2}};

double wide(char letter) {
  for (const auto& [letters, wide] : kLetters) {
    if (letters.find(letter) != std::string_view::npos) return wide;
  }
  return 7.4;
}

std::string swatch(double x, double y, const LineLook& look, bool box) {
  if (box)
    return format("<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"10\" rx=\"2\" fill=\"{}\"/>", at(x),
                  at(y - 9), colour(look.n));
  return format("<path {} d=\"M{} {}h16\"/>", line_look(look), at(x), at(y - 4));
}

}  // namespace

std::string light_colours() {
  return colours(kLight, "--paper:#ffffff;--ink:#1b1f24;--soft:#57606a;--line:#dde1e6;--card:#f6f8fa;");
}

std::string dark_colours() {
  return colours(kDark, "--paper:#14171c;--ink:#e8eaed;--soft:#a3adb8;--line:#343b45;--card:#1c2027;");
}

std::string colour(size_t n) {
  return format("var(--ls{})", n % kLight.size());
}

std::string line_look(const LineLook& look) {
  if (look.faint) return "class=\"c f\"";
  return format("class=\"{}\" stroke=\"{}\"",
                look.dashed                       ? "c d"
                : look.n / kLight.size() % 2 == 1 ? "c o"
                                                  : "c",
                colour(look.n));
}

std::string at(double value) {
  auto text = format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

size_t letters_of(const std::string& text) {
  size_t letters = 0;
  for (const char byte : text) letters += (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
  return letters;
}

std::string shortened(const std::string& text, size_t letters) {
  if (letters_of(text) <= letters) return text;
  size_t seen = 0, end = 0;
  while (end < text.size() && (seen += (static_cast<unsigned char>(text[end]) & 0xc0) != 0x80) < letters)
    ++end;
  return text.substr(0, end) + "…";
}

std::string words(double x, double y, const std::string& anchor, const std::string& text,
                  const std::string& kind) {
  return format("<text x=\"{}\" y=\"{}\"{}{}>{}</text>", at(x), at(y),
                anchor == "start" ? std::string() : " text-anchor=\"" + anchor + "\"",
                kind.empty() ? kind : " class=\"" + kind + "\"", escaped(text));
}

double width_of(const std::string& text) {
  double sum = 0;
  for (const char byte : text) sum += (static_cast<unsigned char>(byte) & 0xc0) == 0x80 ? 0 : wide(byte);
  return sum;
}

std::string fitting(const std::string& text, double width) {
  auto letters = letters_of(text);
  while (letters > 1 && width_of(shortened(text, letters)) > width) --letters;
  return shortened(text, letters);
}

std::vector<std::string> broken(const std::string& text, double width, size_t most_rows) {
  std::vector<std::string> rows(1);
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find(' ', begin), text.size());
    const auto word = text.substr(begin, end - begin);
    const auto longer = rows.back().empty() ? word : rows.back() + " " + word;
    if (rows.back().empty() || width_of(longer) <= width || rows.size() == most_rows) {
      rows.back() = longer;
    } else {
      rows.push_back(word);
    }
  }
  for (auto& row : rows) row = fitting(row, width);
  return rows;
}

std::string heading(const std::string& title, const std::vector<LegendEntry>& entries, bool boxes,
                    double width, double& bottom) {
  constexpr double kLeft = 8, kTitle = 1.25;  // larger than the rest, and bold
  std::string svg;
  const auto rows = broken(title, (width - 2 * kLeft) / kTitle, 2);
  for (size_t i = 0; i < rows.size() && !title.empty(); ++i)
    svg += words(kLeft, 20 + kRow * static_cast<double>(i), "start", rows[i], "t");
  bottom = title.empty() ? 6 : 10 + kRow * static_cast<double>(rows.size());
  if (entries.size() < 2 && !boxes) return svg;
  double x = kLeft, y = bottom + 12;
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto name = fitting(entries[i].name, std::min(320.0, width - 2 * kLeft - kSwatch));
    const double wide = kSwatch + width_of(name);
    if (x > kLeft && x + wide > width) x = kLeft, y += kRow;
    const auto look = look_of(entries[i].look, i);
    svg += swatch(x, y, {look, entries[i].dashed, entries[i].faint}, boxes) +
           words(x + kSwatch, y, "start", name);
    x += wide + kBetween;
  }
  bottom = y + 8;
  return svg;
}

std::string picture(const std::string& title, double width, double height, const std::string& inside) {
  return format(
             "<svg class=\"ls\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\" "
             "aria-label=\"{}\">",
             at(width), at(height), escaped(title)) +
         style() + inside + "</svg>\n";
}

}  // namespace lockstep::plot
