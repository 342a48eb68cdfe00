#include "lockstep/base/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/base/readable.h"

namespace lockstep::log {
namespace {

constexpr std::array<const char*, 5> kNames = {"debug", "info", "warning", "error", "silent"};

std::atomic<int> own_rank{0};
std::atomic<int> world_size{1};
std::atomic<Level> rank_zero_level{Level::info};
std::atomic<Level> other_level{Level::error};
std::atomic<const char*> line_begin{""};

// one write call a line, so that the lines of several ranks do not mix
void write_line(const std::string& line) {
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

void say(Level level, const std::string& text) {
  if (level < (own_rank == 0 ? rank_zero_level : other_level).load()) return;
  std::string line = line_begin.load();
  if (world_size > 1 && own_rank != 0) line += "[rank " + std::to_string(own_rank) + "] ";
  if (level != Level::info) line += std::string(kNames[static_cast<size_t>(level)]) + ": ";
  write_line(line + base::readable(text) + "\n");
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

void begin_with(const char* clear_row) {
  line_begin = clear_row;
}

Level parse_level(const std::string& name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return static_cast<Level>(i);
  }
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

}  // namespace lockstep::log
