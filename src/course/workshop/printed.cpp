#include "course/workshop/printed.h"

#include <deque>
#include <sstream>

#include "course/workshop/cut_line.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/readable.h"

namespace lockstep::workshop {
namespace {

constexpr size_t kMostRanks = 4;
constexpr size_t kMostPrintedLines = 5;
constexpr size_t kMostPrintedBytes = 120;  // of a line
constexpr size_t kTailBytes = 1 << 16;     // of all that a rank printed

bool begins_an_error(const std::string& line) {
  return log::begins_error(line) || line.starts_with("terminate called ");  // libstdc++'s
}

std::deque<std::string> last_lines(const std::string& printed, const std::string& said) {
  std::deque<std::string> lines;
  std::istringstream stream(printed.size() > kTailBytes ? printed.substr(printed.size() - kTailBytes)
                                                        : printed);
  for (std::string line; std::getline(stream, line) && !begins_an_error(line);) {
    const auto shown = cut_line(base::readable(line), kMostPrintedBytes);
    if (shown.empty() || said.find(shown) != std::string::npos) continue;
    lines.push_back(shown);
    if (lines.size() > kMostPrintedLines) lines.pop_front();
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
