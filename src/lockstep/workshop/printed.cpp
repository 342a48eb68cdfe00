#include "lockstep/workshop/printed.h"

#include <deque>
#include <regex>
#include <sstream>

#include "lockstep/base/format.h"
#include "lockstep/base/readable.h"

namespace lockstep::workshop {
namespace {

constexpr size_t kMostRanks = 4;
constexpr size_t kMostLines = 5;
constexpr size_t kLongest = 120;  // bytes of a line
constexpr size_t kMostBytes = 1 << 16;

bool begins_an_error(const std::string& line) {
  static const std::regex form(R"(^(\[rank \d+\] )?error: |^terminate called )");
  return std::regex_search(line.substr(0, kLongest), form);
}

std::string cut(const std::string& line) {
  if (line.size() <= kLongest) return line;
  auto end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;  // no half letter
  return line.substr(0, end) + " ...";
}

std::deque<std::string> last_lines(const std::string& printed, const std::string& said) {
  std::deque<std::string> lines;
  std::istringstream stream(printed.size() > kMostBytes ? printed.substr(printed.size() - kMostBytes)
                                                        : printed);
  for (std::string line; std::getline(stream, line) && !begins_an_error(line);) {
    const auto shown = cut(base::readable(line));
    if (shown.empty() || said.find(shown) != std::string::npos) continue;
    lines.push_back(shown);
    if (lines.size() > kMostLines) lines.pop_front();
  }
  return lines;
}

}  // namespace

std::string printed_words(const std::vector<std::string>& printed, const std::string& said,
                          const std::string& folder) {
  std::string words;
  size_t ranks = 0;
  for (size_t rank = 0; rank < printed.size() && ranks < kMostRanks; ++rank) {
    const auto lines = last_lines(printed[rank], said);
    if (lines.empty()) continue;
    ++ranks;
    for (const auto& line : lines) words += format("rank {} printed: {}\n", rank, line);
  }
  return words.empty() ? "" : words + format("(all of it: {}/rank-N.log)", folder);
}

}  // namespace lockstep::workshop
