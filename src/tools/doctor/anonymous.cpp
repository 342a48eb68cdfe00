#include "tools/doctor/anonymous.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <regex>

namespace lockstep::doctor {
namespace {

using nlohmann::ordered_json;

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789.,:()x-") == std::string::npos;
}

bool has_any(const std::string& name, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return name.find(word) != std::string::npos; });
}

void hide(Secrets& secrets, const char* kind, const std::string& text) {
  if (text.size() < kShortestSecret || text == "none") return;
  auto& list = secrets[kind];
  if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
}

// "n1.cluster.org", and its short name, and its domain
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
  for (const gid_t number : groups) {
    if (const group* known = ::getgrgid(number)) hide(secrets, "group", known->gr_name);
  }
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
  bool (*spare)(const std::string& text);  // what is told all the same
};

bool spare_nothing(const std::string&) {
  return false;
}
bool spare_loopback(const std::string& text) {
  return text.starts_with("127.") || text == "0.0.0.0";
}
// a PCI bus, a time of day
bool spare_few_colons(const std::string& text) {
  return text == "::1" ||
         (text.find("::") == std::string::npos && std::count(text.begin(), text.end(), ':') < 4);
}
bool spare_system_path(const std::string& text) {
  static constexpr const char* known[] = {"/dev/shm", "/dev/nvidia", "/proc/", "/etc/hosts", "/sys/class/"};
  return std::any_of(std::begin(known), std::end(known),
                     [&](const char* path) { return text.starts_with(path); });
}

const std::vector<Pattern>& patterns() {
  static const std::vector<Pattern> list = {
      {"gpu", std::regex("(GPU|MIG)-[0-9a-fA-F-]{8,}"), spare_nothing},
      {"id", std::regex("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"), spare_nothing},
      {"path", std::regex("~?/[^\\s\"'`,;:()<>|]+"), spare_system_path},
      {"address", std::regex("[0-9]{1,3}(\\.[0-9]{1,3}){3}"), spare_loopback},
      {"address", std::regex("([0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4}"), spare_few_colons},
  };
  return list;
}

class Scrubber {
 public:
  explicit Scrubber(const Secrets& secrets) {
    for (const auto& [kind, texts] : secrets) {
      for (const auto& text : texts) known_.emplace_back(text, stand_in(kind, text));
    }
    // a name may be a part of a longer one
    std::sort(known_.begin(), known_.end(),
              [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  }

  void scrub(ordered_json& json) {
    if (json.is_string()) json = scrubbed(json.get<std::string>());
    if (!json.is_structured()) return;
    for (auto& [key, value] : json.items()) {
      if (key == "variables") scrub_variables(value);
      if (key != "check" && key != "verdict") scrub(value);  // words of our own
    }
  }

 private:
  const std::string& stand_in(const std::string& kind, const std::string& text) {
    const auto [found, fresh] = stand_ins_.emplace(text, "");
    if (fresh) found->second = kind + std::to_string(counts_[kind]++);
    return found->second;
  }

  static bool within_word(const std::string& text, size_t at, size_t size) {
    const auto is_word = [&](size_t place) {
      return place < text.size() && std::isalnum(static_cast<unsigned char>(text[place]));
    };
    return (at > 0 && is_word(at - 1)) || is_word(at + size);
  }

  std::string without_known(std::string text) const {
    for (const auto& [secret, instead] : known_) {
      for (size_t at = 0; (at = text.find(secret, at)) != std::string::npos;) {
        const bool is_part = within_word(text, at, secret.size());
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
      // "0/2" and "n/a" are no paths
      const bool inside =
          at > 0 && std::isalnum(static_cast<unsigned char>(text[static_cast<size_t>(at) - 1]));
      result.append(from, text.begin() + at);
      result += inside || pattern.spare(match->str()) ? match->str() : stand_in(pattern.kind, match->str());
      from = text.begin() + at + match->length();
    }
    return result.append(from, text.end());
  }

  // names of hosts and users may be parts of paths: those go first, and known ones before all, as a blank in
  // one ends the pattern
  std::string scrubbed(std::string text) {
    text = without_known(std::move(text));
    for (const Pattern& pattern : patterns()) {
      if (pattern.kind == std::string("path")) text = without(text, pattern);
    }
    text = without_known(text);
    for (const Pattern& pattern : patterns()) text = without(text, pattern);
    return text;
  }

  // A scheduler's values are names of a site's; counts, and what people set for libraries, matter.
  void scrub_variables(ordered_json& variables) {
    static constexpr const char* kLibraries[] = {"OMP_",  "MKL_",   "KMP_",  "NCCL_",
                                                 "GLOO_", "TORCH_", "ATEN_", "UCX_"};
    for (auto& [name, value] : variables.items()) {
      const bool ours =
          std::any_of(std::begin(kLibraries), std::end(kLibraries),
                      [&, &variable = name](const char* prefix) { return variable.starts_with(prefix); });
      const bool tells_who =
          has_any(name, {"ID", "USER", "PORT", "HOST", "ADDR", "KEY", "TOKEN", "SECRET", "PASS"});
      if (!value.is_string() || (ours && !tells_who)) continue;
      if (tells_who || !is_number(value.get<std::string>())) value = "(set)";
    }
  }

  std::vector<std::pair<std::string, std::string>> known_;
  std::map<std::string, std::string> stand_ins_;
  std::map<std::string, int> counts_;
};

}  // namespace

Secrets secrets_of(const Picture& picture, const std::map<std::string, std::string>& environment) {
  Secrets secrets;
  for (const RankFacts& facts : picture.ranks) {
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
  ordered_json parsed = ordered_json::parse(json);
  Scrubber(secrets).scrub(parsed);
  return parsed.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::doctor
