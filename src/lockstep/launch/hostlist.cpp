#include "lockstep/launch/hostlist.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::launch {
namespace {

constexpr size_t kMostHosts = 1'000'000;
constexpr size_t kLongestHost = 255;  // RFC 1123

std::string excerpt(const std::string& text) {
  std::string result = text.substr(0, 60);
  std::replace_if(
      result.begin(), result.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text.size() > 60 ? result + "..." : result;
}

bool is_host_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' || c == ':';
}

void check_host(const std::string& host, const std::string& list) {
  if (host.empty() || host.size() > kLongestHost || host.front() == '-' ||
      !std::all_of(host.begin(), host.end(), is_host_character)) {
    throw InputError(format("'{}' is no host name", excerpt(host)), format("node list '{}'", excerpt(list)),
                     "give one host name a line");
  }
}

}  // namespace

std::vector<std::string> parse_node_file(const std::string& text) {
  std::vector<std::string> hosts;
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line.erase(line.find_last_not_of(" \t\r") + 1);
    line.erase(0, line.find_first_not_of(" \t"));
    if (line.empty()) continue;
    check_host(line, text);
    if (hosts.size() == kMostHosts)
      throw InputError(format("a node file of more than {} lines", kMostHosts),
                       format("node list '{}'", excerpt(text)), "give one host name a line");
    hosts.push_back(line);
  }
  return hosts;
}

std::vector<int> parse_task_counts(const std::string& text) {
  const auto refuse = [&](const std::string& what) {
    throw InputError(format("malformed task counts: {}", what), format("'{}'", excerpt(text)),
                     "they look like 2(x2),1: tasks on each node");
  };
  const auto number = [&](const std::string& digits) {
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 1) {
      refuse(format("'{}' is not a count", excerpt(digits)));
    }
    return value;
  };
  std::vector<int> counts;
  std::stringstream parts(text + ",");
  for (std::string part; std::getline(parts, part, ',');) {
    int repeat = 1;
    if (const auto open = part.find("(x"); open != std::string::npos) {
      if (part.back() != ')') refuse("'(' without ')'");
      repeat = number(part.substr(open + 2, part.size() - open - 3));
      part.resize(open);
    }
    if (counts.size() + static_cast<size_t>(repeat) > kMostHosts)
      refuse(format("more than {} nodes", kMostHosts));
    counts.insert(counts.end(), static_cast<size_t>(repeat), number(part));
  }
  return counts;
}

std::vector<std::string> unique_hosts(const std::vector<std::string>& hosts) {
  std::unordered_set<std::string> seen;
  std::vector<std::string> result;
  for (const auto& host : hosts) {
    if (seen.insert(host).second) result.push_back(host);
  }
  return result;
}

bool same_host(const std::string& a, const std::string& b) {
  const auto is_address = [](const std::string& text) {
    return text.find(':') != std::string::npos || text.find_first_not_of("0123456789.") == std::string::npos;
  };
  if (is_address(a) || is_address(b)) return a == b;
  return a.substr(0, a.find('.')) == b.substr(0, b.find('.'));
}

}  // namespace lockstep::launch
