#include "tools/doctor/print.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::doctor {
namespace {

using nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr size_t kLongestSentence = 2000;  // of one sentence

std::string lines_below(const std::string& text, const std::string& lead) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);)
    result += lead + base::printable(line, kLongestSentence) + "\n";
  return result;
}

size_t count(const Findings& findings, FindingLevel verdict) {
  return static_cast<size_t>(std::count_if(
      findings.begin(), findings.end(), [&](const Finding& finding) { return finding.verdict == verdict; }));
}

std::string counted(size_t number, const char* one, const char* many) {
  return number == 0 ? format("no {}", one) : format("{} {}", number, number == 1 ? one : many);
}

FindingLevel worst_of(const Findings& findings) {
  FindingLevel worst = FindingLevel::ok;
  for (const Finding& finding : findings) worst = std::max(worst, finding.verdict);
  return worst;
}

}  // namespace

std::string as_text(const Finding& finding, const std::string& tag) {
  std::string text = format("{}{:<8} {:<11} {}\n", tag, name_of(finding.verdict), finding.check,
                            base::printable(finding.says, kLongestSentence));
  const std::string lead = tag + std::string(21, ' ');
  if (!finding.remedy.empty()) text += lines_below("to do: " + finding.remedy, lead);
  return text + lines_below(finding.drawing, lead);
}

std::string summary(const Findings& findings, double seconds) {
  return format("{} ok, {}, {}, {:.1f} s\n", count(findings, FindingLevel::ok),
                counted(count(findings, FindingLevel::warning), "warning", "warnings"),
                counted(count(findings, FindingLevel::failure), "failure", "failures"), seconds);
}

std::string as_json(const Findings& findings, const Picture& picture, double seconds) {
  ordered_json list = ordered_json::array(), ranks = ordered_json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"check", finding.check},
                    {"verdict", name_of(finding.verdict)},
                    {"says", finding.says},
                    {"remedy", finding.remedy},
                    {"drawing", finding.drawing}});
  }
  for (const RankFacts& facts : picture.ranks) ranks.push_back(ordered_json::parse(pack(facts)));
  const ordered_json json = {{"schema", kSchema},
                             {"verdict", name_of(worst_of(findings))},
                             {"seconds", seconds},
                             {"world", picture.world()},
                             {"complete", picture.complete()},
                             {"findings", list},
                             {"ranks", ranks}};
  // processes that cannot speak as one print one line each; the environment may hold bytes that are no UTF-8
  return json.dump(picture.complete() ? 2 : -1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::doctor
