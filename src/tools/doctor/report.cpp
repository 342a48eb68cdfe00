#include "tools/doctor/report.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::doctor {
namespace {

using nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr size_t kLongestLine = 2000;
constexpr size_t kShortestSecret = 2;  // a single letter is everywhere

std::string lines_below(const std::string& text, const std::string& lead) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);)
    result += lead + base::printable(line, kLongestLine) + "\n";
  return result;
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789.,:()x-") == std::string::npos;
}

bool has_any(const std::string& name, std::initializer_list<const char*> words) {
  return std::ranges::any_of(words, [&](const char* word) { return name.find(word) != std::string::npos; });
}

bool starts_with_any(const std::string& text, std::initializer_list<const char*> prefixes) {
  return std::ranges::any_of(prefixes, [&](const char* prefix) { return text.starts_with(prefix); });
}

void hide(Secrets& secrets, const char* kind, const std::string& text) {
  if (text.size() < kShortestSecret || text == "none") return;
  auto& list = secrets[kind];
  if (std::ranges::find(list, text) == list.end()) list.push_back(text);
}

// "n1.cluster.org", its short name, and its domain
void hide_host(Secrets& secrets, const std::string& host) {
  hide(secrets, "node", host);
  const auto dot = host.find('.');
  if (dot == std::string::npos || is_number(host)) return;
  hide(secrets, "node", host.substr(0, dot));
  hide(secrets, "domain", host.substr(dot + 1));
}

void hide_person(Secrets& secrets) {
  if (const passwd* user = ::getpwuid(::geteuid())) {
    hide(secrets, "user", user->pw_name);
    hide(secrets, "path", user->pw_dir);
  }
  std::vector<gid_t> groups(static_cast<size_t>(std::max(0, ::getgroups(0, nullptr))));
  groups.resize(
      static_cast<size_t>(std::max(0, ::getgroups(static_cast<int>(groups.size()), groups.data()))));
  groups.push_back(::getegid());
  for (const gid_t number : groups)
    if (const group* known = ::getgrgid(number)) hide(secrets, "group", known->gr_name);
}

void hide_variable(Secrets& secrets, const std::string& name, const std::string& value) {
  if (has_any(name, {"JOB_ID", "JOBID"})) return hide(secrets, "job", value);
  if (is_number(value)) return;
  if (name == "USER" || name == "LOGNAME" || name.ends_with("_USER")) return hide(secrets, "user", value);
  if (has_any(name, {"ACCOUNT", "PROJECT"})) return hide(secrets, "account", value);
  if (has_any(name, {"QUEUE", "PARTITION", "CLUSTER_NAME", "RESERVATION", "JOB_NAME", "JOBNAME"}))
    return hide(secrets, "name", value);
  if (name.ends_with("HOST") || name == "HOSTNAME" || name == "MASTER_ADDR" || name == "SLURMD_NODENAME")
    hide_host(secrets, value);
}

struct Pattern {
  const char* kind;
  std::regex form;
  bool (*is_public)(const std::string& text);
};

const std::vector<Pattern>& patterns() {
  static const auto never = [](const std::string&) { return false; };
  static const std::vector<Pattern> list = {
      {"gpu", std::regex("(GPU|MIG)-[0-9a-fA-F-]{8,}"), never},
      {"id", std::regex("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"), never},
      {"path", std::regex("~?/[^\\s\"'`,;:()<>|]+"),
       [](const std::string& text) {
         return starts_with_any(text, {"/dev/shm", "/dev/nvidia", "/proc/", "/etc/hosts", "/sys/class/"});
       }},
      {"address", std::regex("[0-9]{1,3}(\\.[0-9]{1,3}){3}"),
       [](const std::string& text) { return text.starts_with("127.") || text == "0.0.0.0"; }},
      // not a PCI bus or a time of day
      {"address", std::regex("([0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4}"),
       [](const std::string& text) {
         return text == "::1" || (text.find("::") == std::string::npos && std::ranges::count(text, ':') < 4);
       }},
  };
  return list;
}

class Scrubber {
 public:
  explicit Scrubber(const Secrets& secrets) {
    for (const auto& [kind, texts] : secrets)
      for (const auto& text : texts) known_.emplace_back(text, placeholder(kind, text));
    // the longest first: a name may be a part of another
    std::ranges::sort(known_, [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  }

  void scrub(ordered_json& json) {
    if (json.is_string()) json = scrubbed(json.get<std::string>());
    if (!json.is_structured()) return;
    for (auto& [key, value] : json.items()) {
      if (key == "variables") scrub_variables(value);
      if (key != "check" && key != "verdict") scrub(value);
    }
  }

 private:
  std::string placeholder(const std::string& kind, const std::string& text) {
    const auto [found, is_new] = placeholders_.emplace(text, "");
    if (is_new) found->second = kind + std::to_string(counts_[kind]++);
    return found->second;
  }

  static bool is_in_word(const std::string& text, size_t at, size_t size) {
    const auto is_letter = [&](size_t place) {
      return place < text.size() && std::isalnum(static_cast<unsigned char>(text[place]));
    };
    return (at > 0 && is_letter(at - 1)) || is_letter(at + size);
  }

  std::string without_known(std::string text) const {
    for (const auto& [secret, instead] : known_) {
      for (size_t at = 0; (at = text.find(secret, at)) != std::string::npos;) {
        const bool is_part = is_in_word(text, at, secret.size());
        if (!is_part) text.replace(at, secret.size(), instead);
        at += is_part ? secret.size() : instead.size();
      }
    }
    return text;
  }

  std::string without(const std::string& text, const Pattern& pattern) {
    std::string result;
    auto from = text.begin();
    for (std::sregex_iterator match(text.begin(), text.end(), pattern.form), end; match != end; ++match) {
      const auto at = match->position();
      // "0/2" and "n/a" are not paths
      const bool in_word =
          at > 0 && std::isalnum(static_cast<unsigned char>(text[static_cast<size_t>(at) - 1]));
      result.append(from, text.begin() + at);
      result +=
          in_word || pattern.is_public(match->str()) ? match->str() : placeholder(pattern.kind, match->str());
      from = text.begin() + at + match->length();
    }
    return result.append(from, text.end());
  }

  // Names may be parts of paths, so paths go first; before them known texts, which may contain blanks.
  std::string scrubbed(std::string text) {
    text = without_known(std::move(text));
    for (const Pattern& pattern : patterns())
      if (pattern.kind == std::string("path")) text = without(text, pattern);
    text = without_known(text);
    for (const Pattern& pattern : patterns()) text = without(text, pattern);
    return text;
  }

  void scrub_variables(ordered_json& variables) {
    for (auto& [name, value] : variables.items()) {
      const bool identifies =
          has_any(name, {"ID", "USER", "PORT", "HOST", "ADDR", "KEY", "TOKEN", "SECRET", "PASS"});
      const bool of_library =
          starts_with_any(name, {"OMP_", "MKL_", "KMP_", "NCCL_", "GLOO_", "TORCH_", "ATEN_", "UCX_"});
      if (!value.is_string() || (of_library && !identifies)) continue;
      if (identifies || !is_number(value.get<std::string>())) value = "(set)";
    }
  }

  std::vector<std::pair<std::string, std::string>> known_;
  std::map<std::string, std::string> placeholders_;
  std::map<std::string, int> counts_;
};

}  // namespace

std::string as_text(const Finding& finding, const std::string& tag) {
  static constexpr const char* names[] = {"ok", "warning", "failure"};
  std::string text = format("{}{:<8} {:<11} {}\n", tag, names[static_cast<size_t>(finding.verdict)],
                            finding.check, base::printable(finding.says, kLongestLine));
  const std::string lead = tag + std::string(21, ' ');
  if (!finding.remedy.empty()) text += lines_below("to do: " + finding.remedy, lead);
  return text + lines_below(finding.drawing, lead);
}

std::string summary(const Findings& findings, double seconds) {
  const auto counted = [&](FindingLevel level, const std::string& what) {
    const auto number = std::ranges::count(findings, level, &Finding::verdict);
    return number == 0 ? "no " + what : format("{} {}{}", number, what, number == 1 ? "" : "s");
  };
  return format(
      "{} ok, {}, {}, {:.1f} s\n", std::ranges::count(findings, FindingLevel::ok, &Finding::verdict),
      counted(FindingLevel::warning, "warning"), counted(FindingLevel::failure, "failure"), seconds);
}

FindingLevel worst_of(const Findings& findings) {
  FindingLevel worst = FindingLevel::ok;
  for (const Finding& finding : findings) worst = std::max(worst, finding.verdict);
  return worst;
}

std::string as_json(const Findings& findings, const Cluster& cluster, double seconds) {
  ordered_json list = ordered_json::array(), ranks = ordered_json::array();
  for (const Finding& finding : findings)
    list.push_back({{"check", finding.check},
                    {"verdict", nlohmann::json(finding.verdict)},
                    {"says", finding.says},
                    {"remedy", finding.remedy},
                    {"drawing", finding.drawing}});
  for (const RankFacts& facts : cluster.ranks) ranks.push_back(ordered_json(nlohmann::json(facts)));
  const ordered_json json = {{"schema", kSchema},
                             {"verdict", nlohmann::json(worst_of(findings))},
                             {"seconds", seconds},
                             {"world", cluster.world()},
                             {"complete", cluster.complete()},
                             {"findings", list},
                             {"ranks", ranks}};
  // one line where several processes print; the environment may hold bytes that are not UTF-8
  return json.dump(cluster.complete() ? 2 : -1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Secrets secrets_of(const Cluster& cluster, const std::map<std::string, std::string>& environment) {
  Secrets secrets;
  for (const RankFacts& facts : cluster.ranks) {
    hide_host(secrets, facts.job.host);
    hide(secrets, "job", facts.job.job_id);
    hide(secrets, "path", facts.walls.no_folder);
    for (const auto& [name, value] : facts.variables) hide_variable(secrets, name, value);
  }
  hide_person(secrets);
  for (const auto& [name, value] : environment) hide_variable(secrets, name, value);
  return secrets;
}

std::string anonymous(const std::string& json, const Secrets& secrets) {
  auto parsed = ordered_json::parse(json);
  Scrubber(secrets).scrub(parsed);
  return parsed.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::doctor
