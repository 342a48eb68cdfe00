#pragma once
// Lines to stderr with a level and a rank tag. The one piece of global state in the house.

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep::log {

enum class Level { debug, info, warning, error, silent };

/// Who speaks: ranks other than 0 are heard from `others` upward (default: error).
void set_rank(int rank, int world);
void set_level(Level level, Level others = Level::error);
Level parse_level(const std::string& name);
/// On a terminal whose last row holds a progress line: from now on a line takes that row for its own.
void begin_with(const char* clear_row);

void debug(const std::string& text);
void info(const std::string& text);
void warning(const std::string& text);
void error(const std::string& text);

/// Whether error() wrote this line, on any rank, as the first of one.
bool begins_error(std::string_view line);

// How the log's lines look where they end on a terminal.

struct LogLook {
  bool colour = false;
  std::function<size_t()> width = {};  // of the terminal now; none = lines stay as they are
};

/// Before the first thread that logs.
void set_look(LogLook look);

}  // namespace lockstep::log
