#include "lockstep/launch/hostlist.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::launch {
namespace {

constexpr size_t kMostHosts = 1'000'000;
constexpr size_t kLongestHost = 255;  // RFC 1123
constexpr size_t kMostDigits = 18;
constexpr int kMostBrackets = 8;  // in one name; Slurm itself knows five dimensions

std::string excerpt(const std::string& text) {
  std::string result = text.substr(0, 60);
  std::replace_if(
      result.begin(), result.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text.size() > 60 ? result + "..." : result;
}

[[noreturn]] void malformed(const std::string& what, const std::string& text) {
  throw InputError(format("malformed host list: {}", what), format("'{}'", excerpt(text)),
                   "a host list looks like n1,n[01-03,7] or r[1-2]n[1-3]");
}

bool is_host_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' || c == ':';
}

// ---- one name of a list, "r[1-2]n[1-3]-ib", seen as fixed text and brackets

struct Range {
  long first, last;
  size_t width;  // digits to pad to
};

long parse_digits(const std::string& digits, const std::string& list) {
  const bool plain = !digits.empty() && std::all_of(digits.begin(), digits.end(),
                                                    [](unsigned char c) { return std::isdigit(c) != 0; });
  if (!plain) malformed(format("'{}' is not a number in brackets", excerpt(digits)), list);
  if (digits.size() > kMostDigits) malformed(format("the number {} is too long", excerpt(digits)), list);
  return std::stol(digits);
}

Range parse_range(const std::string& text, const std::string& list) {
  const auto dash = text.find('-');
  const std::string first = text.substr(0, dash);
  const std::string last = dash == std::string::npos ? first : text.substr(dash + 1);
  const Range range{parse_digits(first, list), parse_digits(last, list), first.size()};
  if (range.last < range.first) malformed(format("the range {} runs backwards", text), list);
  if (static_cast<size_t>(range.last - range.first) >= kMostHosts) {
    malformed(format("the range {} holds more than {} hosts", text, kMostHosts), list);
  }
  return range;
}

std::string padded(long number, size_t width) {
  const std::string digits = std::to_string(number);
  return digits.size() >= width ? digits : std::string(width - digits.size(), '0') + digits;
}

std::vector<std::string> expand_bracket(const std::string& inside, const std::string& list) {
  std::vector<std::string> numbers;
  std::stringstream parts(inside + ",");
  for (std::string part; std::getline(parts, part, ',');) {
    const Range range = parse_range(part, list);
    if (numbers.size() + static_cast<size_t>(range.last - range.first) >= kMostHosts) {
      malformed(format("more than {} hosts", kMostHosts), list);
    }
    for (long n = range.first; n <= range.last; ++n) numbers.push_back(padded(n, range.width));
  }
  return numbers;
}

// the last bracket runs fastest, as in Slurm
std::vector<std::string> extended(const std::vector<std::string>& heads,
                                  const std::vector<std::string>& tails, const std::string& list) {
  if (heads.size() * tails.size() > kMostHosts) malformed(format("more than {} hosts", kMostHosts), list);
  std::vector<std::string> result;
  result.reserve(heads.size() * tails.size());
  for (const auto& head : heads) {
    for (const auto& tail : tails) result.push_back(head + tail);
  }
  return result;
}

// a name that begins with '-' would be an option to the next program
void check_fixed(const std::string& fixed, bool first, const std::string& list) {
  if (fixed.size() > kLongestHost) malformed("a name longer than 255 characters", list);
  if (!std::all_of(fixed.begin(), fixed.end(), is_host_character) || (first && fixed.starts_with('-'))) {
    malformed(format("'{}' is not part of a host name", excerpt(fixed)), list);
  }
}

std::vector<std::string> expand_name(const std::string& name, const std::string& list) {
  if (name.empty()) malformed("an empty name", list);
  std::vector<std::string> hosts = {""};
  size_t at = 0;
  int brackets = 0;
  while (at < name.size()) {
    const auto open = name.find('[', at);
    const std::string fixed = name.substr(at, open == std::string::npos ? std::string::npos : open - at);
    check_fixed(fixed, at == 0, list);
    hosts = extended(hosts, {fixed}, list);
    if (open == std::string::npos) break;
    if (++brackets > kMostBrackets)
      malformed(format("more than {} brackets in one name", kMostBrackets), list);
    const auto close = name.find(']', open);
    hosts = extended(hosts, expand_bracket(name.substr(open + 1, close - open - 1), list), list);
    at = close + 1;
  }
  if (hosts.front().size() > kLongestHost) malformed("a name longer than 255 characters", list);
  return hosts;
}

// commas inside brackets belong to the brackets
std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> names = {""};
  bool inside = false;
  for (const char c : text) {
    if (c == '[' && inside) malformed("a bracket inside brackets", text);
    if (c == ']' && !inside) malformed("']' without '['", text);
    if (c == '[') inside = true;
    if (c == ']') inside = false;
    if (c == ',' && !inside) {
      names.emplace_back();
    } else {
      names.back() += c;
    }
  }
  if (inside) malformed("'[' without ']'", text);
  return names;
}

// ---- compression: runs of hosts that differ in their last number alone

struct Numbered {
  std::string head, tail;
  long number = 0;
  size_t width = 0;  // 0 = no number
};

Numbered split_number(const std::string& host) {
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  const auto last = std::find_if(host.rbegin(), host.rend(), is_digit);
  const auto first = std::find_if_not(last, host.rend(), is_digit);
  const auto begin = static_cast<size_t>(host.rend() - first), end = static_cast<size_t>(host.rend() - last);
  if (begin == end || end - begin > kMostDigits) return {host, "", 0, 0};
  return {host.substr(0, begin), host.substr(end), std::stol(host.substr(begin, end - begin)), end - begin};
}

// n9 n10 may share a range, n09 n10 too; n9 n09 may not
bool follows(const Numbered& a, const Numbered& b, size_t first_width) {
  return b.number == a.number + 1 && padded(b.number, first_width).size() == b.width;
}

std::string write_group(const std::vector<Numbered>& group) {
  if (group.size() == 1) {
    const auto& one = group.front();
    return one.head + (one.width ? padded(one.number, one.width) : "") + one.tail;
  }
  std::vector<std::string> ranges;
  for (size_t i = 0; i < group.size();) {
    size_t end = i + 1;
    while (end < group.size() && follows(group[end - 1], group[end], group[i].width)) ++end;
    const std::string first = padded(group[i].number, group[i].width);
    ranges.push_back(end - i == 1 ? first : first + "-" + padded(group[end - 1].number, group[i].width));
    i = end;
  }
  return format("{}[{}]{}", group.front().head, base::join(ranges, ","), group.front().tail);
}

void check_host(const std::string& host, const std::string& list) {
  if (host.empty() || host.size() > kLongestHost || host.front() == '-' ||
      !std::all_of(host.begin(), host.end(), is_host_character)) {
    throw InputError(format("'{}' is no host name", excerpt(host)), format("node list '{}'", excerpt(list)),
                     "give one host name a line");
  }
}

}  // namespace

std::vector<std::string> expand_hostlist(const std::string& text) {
  std::vector<std::string> hosts;
  for (const auto& name : split_names(text)) {
    auto more = expand_name(name, text);
    if (hosts.size() + more.size() > kMostHosts) malformed(format("more than {} hosts", kMostHosts), text);
    hosts.insert(hosts.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
  return hosts;
}

std::string compress_hostlist(const std::vector<std::string>& hosts) {
  std::vector<std::string> names;
  std::vector<Numbered> group;
  for (const auto& host : hosts) {
    check_host(host, host);
    Numbered next = split_number(host);
    const bool joins = !group.empty() && next.width && group.front().width &&
                       next.head == group.front().head && next.tail == group.front().tail;
    if (!joins && !group.empty()) {
      names.push_back(write_group(group));
      group.clear();
    }
    group.push_back(std::move(next));
  }
  if (!group.empty()) names.push_back(write_group(group));
  return base::join(names, ",");
}

std::vector<std::string> parse_node_file(const std::string& text) {
  std::vector<std::string> hosts;
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line.erase(line.find_last_not_of(" \t\r") + 1);
    line.erase(0, line.find_first_not_of(" \t"));
    if (line.empty()) continue;
    check_host(line, text);
    if (hosts.size() == kMostHosts) malformed(format("more than {} lines", kMostHosts), text);
    hosts.push_back(line);
  }
  return hosts;
}

std::string write_node_file(const std::vector<std::string>& hosts) {
  std::string text;
  for (const auto& host : hosts) {
    check_host(host, host);
    text += host + "\n";
  }
  return text;
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
