#include "lockstep/base/log.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::log {
namespace {

constexpr std::array<const char*, 5> kNames = {"debug", "info", "warning", "error", "silent"};
constexpr std::array<base::TextStyle, 5> kStyles = {base::TextStyle::faint, base::TextStyle::plain,
                                                    base::TextStyle::bad, base::TextStyle::wrong,
                                                    base::TextStyle::plain};

std::atomic<int> own_rank{0};
std::atomic<int> world_size{1};
std::atomic<Level> rank_zero_level{Level::info};
std::atomic<Level> other_level{Level::error};
std::atomic<const char*> line_begin{""};
std::atomic<bool> in_colour{false};

void say(Level level, const std::string& text) {
  if (level < (own_rank == 0 ? rank_zero_level : other_level).load()) return;
  std::string rank, kind;
  if (world_size > 1 && own_rank != 0) rank = "[rank " + std::to_string(own_rank) + "] ";
  if (level != Level::info) kind = std::string(kNames[static_cast<size_t>(level)]) + ":";
  auto line = rank + kind + (kind.empty() ? "" : " ") + base::readable(text);
  if (in_colour && !kind.empty())
    line.replace(rank.size(), kind.size(), base::with_style(kind, kStyles[static_cast<size_t>(level)]));
  // one write call a line, so that the lines of several ranks do not mix
  base::write_all(STDERR_FILENO, line_begin.load() + line + "\n");
}

}  // namespace

void set_rank(int rank, int world) {
  own_rank = rank;
  world_size = world;
}

void set_level(Level level, Level others) {
  rank_zero_level = level;
  other_level = others;
}

void set_colour(bool colour) {
  in_colour = colour;
}

void begin_with(const char* clear_row) {
  line_begin = clear_row;
}

Level parse_level(const std::string& name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (name == kNames[i]) return static_cast<Level>(i);
  throw InputError("unknown log level '" + name + "'", "--log",
                   "choose debug, info, warning, error or silent");
}

void debug(const std::string& text) {
  say(Level::debug, text);
}
void info(const std::string& text) {
  say(Level::info, text);
}
void warning(const std::string& text) {
  say(Level::warning, text);
}
void error(const std::string& text) {
  say(Level::error, text);
}

bool begins_error(std::string_view line) {
  if (line.starts_with("[rank ")) line.remove_prefix(std::min(line.size(), line.find("] ") + 2));
  return line.starts_with(std::string(kNames[static_cast<size_t>(Level::error)]) + ": ");
}

}  // namespace lockstep::log
