#pragma once
// Lines to stderr with a level and a rank tag.

#include <string>
#include <string_view>

namespace lockstep::log {

enum class Level { debug, info, warning, error, silent };

/// Ranks other than 0 log from level `others` upward.
void set_rank(int rank, int world);
void set_level(Level level, Level others = Level::error);
Level parse_level(const std::string& name);
/// Printed before each line from now on, to clear a progress line.
void begin_with(const char* clear_row);

void debug(const std::string& text);
void info(const std::string& text);
void warning(const std::string& text);
void error(const std::string& text);

/// Whether this is the first line of an error() of any rank.
bool begins_error(std::string_view line);

/// Whether lines mark their level by a color; before the first thread that logs.
void set_colour(bool colour);

}  // namespace lockstep::log
