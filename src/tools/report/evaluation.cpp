// What the last evaluation got wrong: a confusion matrix, and the samples that cost most.
#include <algorithm>
#include <cmath>

#include "lockstep/base/format.h"
#include "tools/plot/page.h"
#include "tools/plot/ticks.h"
#include "tools/report/image.h"
#include "tools/report/parts.h"

namespace lockstep::report {
namespace {

constexpr size_t kMostClasses = 64, kMostSamples = 48;
constexpr double kLeastInk = 10, kMostInk = 45;  // percent; with more the number in it could not be read

std::string class_name(const nlohmann::json& evaluation, double index) {
  const auto& names = list(evaluation, "classes");
  if (!(index >= 0)) return "?";
  const auto i = static_cast<size_t>(std::min(index, 1e9));
  return i < names.size() && names[i].is_string() ? names[i].get<std::string>() : format("{}", i);
}

double count_of(const nlohmann::json& row, size_t column) {
  return row.is_array() && column < row.size() && row[column].is_number() ? row[column].get<double>() : 0;
}

// As strong as the share of its row; green where it is right, red where it is wrong, and the numbers say the
// same.
std::string cell(double count, double of_row, bool right) {
  const double share = of_row > 0 ? std::clamp(count / of_row, 0.0, 1.0) : 0;
  if (count <= 0) return "<td class=\"n soft\">·</td>";
  return format(
      "<td class=\"n\" style=\"background:color-mix(in srgb,var(--ls{}) {:.0f}%,transparent)\">{:.0f}</td>",
      right ? 2 : 1, kLeastInk + (kMostInk - kLeastInk) * std::sqrt(share), count);
}

std::string confusion(const nlohmann::json& evaluation) {
  const auto& rows = list(evaluation, "confusion");
  const size_t classes = rows.size();
  if (classes == 0) return "";
  if (classes > kMostClasses)
    return format("<p class=\"soft\">{} classes: too many for a table.</p>", classes);
  std::string html = "<div class=\"scroll\"><table class=\"m\"><tr><th>actual \\ predicted</th>";
  for (size_t i = 0; i < classes; ++i)
    html += "<th>" + plot::escaped(class_name(evaluation, static_cast<double>(i))) + "</th>";
  html += "<th>right</th></tr>\n";
  for (size_t i = 0; i < classes; ++i) {
    double sum = 0;
    for (size_t j = 0; j < classes; ++j) sum += count_of(rows[i], j);
    html += "<tr><th>" + plot::escaped(class_name(evaluation, static_cast<double>(i))) + "</th>";
    for (size_t j = 0; j < classes; ++j) html += cell(count_of(rows[i], j), sum, i == j);
    html += format("<td class=\"n\">{:.1f} %</td></tr>\n", sum > 0 ? 100 * count_of(rows[i], i) / sum : 0);
  }
  return html + "</table></div>\n";
}

std::string loss_of(const nlohmann::json& sample) {
  const double loss = number(sample, "loss");
  return std::isfinite(loss) ? format("loss {:.2f}", loss) : "no number";
}

std::string shot(const nlohmann::json& evaluation, const nlohmann::json& sample) {
  const auto image = image_uri(sample);
  const auto words = plot::escaped(class_name(evaluation, number(sample, "told"))) +
                     format(" ({:.0f} %)", 100 * number(sample, "probability")) + ", is " +
                     plot::escaped(class_name(evaluation, number(sample, "truth")));
  return "<figure>" + (image.empty() ? "" : "<img alt=\"\" src=\"" + image + "\">") + "<figcaption>" + words +
         format("<br><span class=\"soft\">sample {:.0f}, {}</span></figcaption></figure>\n",
                number(sample, "sample"), loss_of(sample));
}

bool is_right(const nlohmann::json& sample) {
  return number(sample, "told") == number(sample, "truth");
}

std::string shots(const nlohmann::json& evaluation, bool right, const char* heading) {
  std::string html;
  size_t shown = 0;
  for (const auto& sample : list(evaluation, "worst")) {
    if (is_right(sample) == right && shown++ < kMostSamples) html += shot(evaluation, sample);
  }
  return html.empty() ? html : format("<h3>{}</h3>\n<div class=\"shots\">", heading) + html + "</div>\n";
}

// A sample may cost much and be right nevertheless.
std::string worst(const nlohmann::json& evaluation) {
  return shots(evaluation, false, "What it was most wrong about") +
         shots(evaluation, true, "Right, but barely");
}

std::string values(const nlohmann::json& evaluation) {
  std::string html;
  const auto& all = at(evaluation, "values");
  if (!all.is_object()) return html;
  for (const auto& [name, value] : all.items()) {
    html += (html.empty() ? "" : ", ") + plot::escaped(name) + " " +
            (value.is_number() ? format("{:.4f}", value.get<double>()) : "no number");
  }
  return html;
}

}  // namespace

std::string evaluation(const Runs& runs) {
  std::string html;
  for (const auto& run : runs) {
    const auto& evaluation = at(run.facts, "evaluation");
    if (!evaluation.is_object()) continue;
    html += run_heading(runs, run) + format("<p>After step {:.0f}: ", number(evaluation, "step")) +
            values(evaluation) + "</p>\n" + confusion(evaluation) + worst(evaluation);
  }
  return html;
}

}  // namespace lockstep::report
