#pragma once
// How the log's lines look where they end on a terminal.

#include <cstddef>
#include <functional>

namespace lockstep::log {

struct LogLook {
  bool colour = false;
  std::function<size_t()> width = {};  // of the terminal now; none = lines stay as they are
};

/// Before the first thread that logs.
void set_look(LogLook look);

}  // namespace lockstep::log
