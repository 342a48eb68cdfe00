#pragma once
// Lines to stderr with a level and a rank tag. The one piece of global state in the house.

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

}  // namespace lockstep::log
