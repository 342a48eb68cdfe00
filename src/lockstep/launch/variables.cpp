#include "lockstep/launch/variables.h"

#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::launch {
namespace {

constexpr size_t kLongestQuote = 80;

[[noreturn]] void refuse(const Environment& environment, const char* name, const std::string& wanted) {
  throw InputError(format("{} is not {}", quote(environment, name), wanted),
                   format("environment variable {}", name),
                   format("correct or unset {}, or choose another --launcher", name));
}

}  // namespace

bool is_set(const Environment& environment, const char* name) {
  return name && environment.contains(name);
}

std::string text_of(const Environment& environment, const char* name) {
  const auto found = name ? environment.find(name) : environment.end();
  return found == environment.end() ? "" : found->second;
}

std::string quote(const Environment& environment, const char* name) {
  std::string value = text_of(environment, name).substr(0, kLongestQuote);
  for (char& c : value) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';  // no control codes from the environment
  }
  return format("{}={}", name, value.empty() ? "''" : value);
}

std::optional<int> number_of(const Environment& environment, const char* name, int least) {
  if (!is_set(environment, name)) return std::nullopt;
  const std::string text = text_of(environment, name);
  const auto value = base::parse_number(text);
  if (!value || text.front() == '-' || *value < least)
    refuse(environment, name, format("a number from {} to 2147483647", least));
  return value;
}

std::optional<int> count_of(const Environment& environment, const char* name) {
  return number_of(environment, name, 1);
}

Environment current_environment() {
  Environment result;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string::npos) result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

}  // namespace lockstep::launch
