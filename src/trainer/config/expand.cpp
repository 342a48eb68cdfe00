#include "trainer/config/expand.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::config {
namespace {

constexpr int kDeepest = 20;  // each costs a copy of what is inside

bool is_name(const std::string& text) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  return !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), fits);
}

struct Reference {
  std::string name;
  std::optional<std::string> otherwise;
};

Reference split(const std::string& inside) {
  const size_t at = inside.find(":-");
  if (at == std::string::npos) return {inside, std::nullopt};
  return {inside.substr(0, at), inside.substr(at + 2)};
}

// Where the '}' is that ends the "${" at `from`: an `otherwise` may hold references of its own.
size_t closing(const std::string& text, size_t from, const std::string& what, const std::string& where) {
  int depth = 0;
  for (size_t at = from; at < text.size(); ++at) {
    if (text.compare(at, 2, "${") == 0 && ++depth > kDeepest) {
      throw InputError(format("{}: more than {} '${{' stand inside each other", what, kDeepest), where,
                       "write it with fewer");
    }
    if (text[at] == '}' && --depth == 0) return at;
  }
  return std::string::npos;
}

bool is_unset_or_empty(const std::string& name, const std::map<std::string, std::string>& environment) {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty();
}

std::string value_of(const std::string& name, const std::map<std::string, std::string>& environment,
                     const std::string& what, const std::string& where) {
  const auto found = environment.find(name);
  if (found == environment.end()) {
    throw InputError(format("{} needs the environment variable {}, which is not set", what, name), where,
                     format("set it, or write ${{{}:-otherwise}}", name));
  }
  const auto control = [](unsigned char c) { return c < 0x20 || c == 0x7F; };
  if (base::invalid_utf8(found->second) || std::any_of(found->second.begin(), found->second.end(), control)) {
    throw InputError(format("{}: the environment variable {} holds '{}', which is no path", what, name,
                            base::printable(found->second)),
                     where, "set it to plain text");
  }
  return found->second;
}

}  // namespace

std::string expand(const std::string& text, const std::map<std::string, std::string>& environment,
                   const std::string& what, const std::string& where) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '$') {
      out += text[i];
    } else if (text.compare(i, 2, "$$") == 0) {
      out += '$';
      ++i;
    } else {
      const size_t end = text.compare(i, 2, "${") == 0 ? closing(text, i, what, where) : std::string::npos;
      const Reference reference = split(end == std::string::npos ? "" : text.substr(i + 2, end - i - 2));
      if (!is_name(reference.name)) {
        throw InputError(format("{}: a '$' in '{}' that names no variable", what, base::printable(text)),
                         where, "write ${NAME} or ${NAME:-otherwise} for a variable, $$ for a dollar");
      }
      const bool otherwise = reference.otherwise && is_unset_or_empty(reference.name, environment);
      out += otherwise ? expand(*reference.otherwise, environment, what, where)
                       : value_of(reference.name, environment, what, where);
      i = end;
    }
  }
  return out;
}

std::string unexpand(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '$' ? "$$" : std::string(1, c);
  return out;
}

std::vector<std::string> names_in_braces(const std::string& text) {
  std::vector<std::string> names;
  for (size_t at = text.find("${"); at != std::string::npos; at = text.find("${", at + 2)) {
    const size_t end = text.find_first_of(":}", at);
    if (end == std::string::npos) break;
    const std::string name = text.substr(at + 2, end - at - 2);
    if (is_name(name)) names.push_back(name);
  }
  return names;
}

}  // namespace lockstep::config
