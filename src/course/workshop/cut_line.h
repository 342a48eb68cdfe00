#pragma once
// A line as short as a learner wants to read it.

#include <cstddef>
#include <string>

namespace lockstep::workshop {

/// The line, or its first `most` bytes at most, with " ..." behind them.
inline std::string cut_line(const std::string& line, size_t most) {
  if (line.size() <= most) return line;
  auto end = most;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;  // no half letter
  return line.substr(0, end) + " ...";
}

}  // namespace lockstep::workshop
