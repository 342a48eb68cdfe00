#include "trainer/run_folder/console.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <vector>

#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"

namespace lockstep::run_folder {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr size_t kLongestBar = 20, kShortestBar = 8, kAroundBar = 3;  // "[", "] "

constexpr const char* kClearRow = "\r\033[K";

std::atomic<bool> silent_trainings{false};

// where nobody reads any more, training goes on
void draw(const std::string& text) {
  while (::write(STDERR_FILENO, text.data(), text.size()) < 0 && errno == EINTR) {
  }
}

// with a blank behind it; nothing where there is no room for one that shows anything
std::string bar(int64_t done, int64_t all, size_t room) {
  if (room < kShortestBar + kAroundBar) return "";
  const auto width = std::min(room - kAroundBar, kLongestBar);
  const auto filled =
      all > 0 ? width * static_cast<size_t>(std::min(done, all)) / static_cast<size_t>(all) : 0;
  return "[" + std::string(filled, '#') + std::string(width - filled, '.') + "] ";
}

// the columns that a text may take: the last one would wrap
size_t room_in(int width) {
  return static_cast<size_t>(std::max(width - 1, 10));
}

}  // namespace

std::string short_time(double seconds) {
  const auto s = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  if (s < 60) return format("{}s", s);
  if (s < 3600) return format("{}m{:02}s", s / 60, s % 60);
  return format("{}h{:02}m", s / 3600, s % 3600 / 60);
}

std::string step_time(double seconds) {
  return seconds < 1 ? format("{:.3g} ms", 1e3 * seconds) : format("{:.3g} s", seconds);
}

std::string progress_line(const Progress& progress, int width) {
  std::vector<std::string> parts = {format("Epoch {}/{}", progress.epoch + 1, progress.epochs),
                                    format("step {}/{}", progress.step, progress.steps),
                                    format("loss {:.4f}", progress.loss),
                                    format("{:.0f} samples/s", progress.samples_per_second),
                                    format("{} left", short_time(progress.seconds_left))};
  const auto room = room_in(width);
  auto text = base::join(parts, "  ");
  for (const size_t least : {3, 3, 2, 1}) {  // of what is left of them
    if (text.size() <= room) break;
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(least));
    text = base::join(parts, "  ");
  }
  if (text.size() > room) return text.substr(0, room);
  return bar(progress.step, progress.steps, room - text.size()) + text;
}

void silence_trainings() {
  silent_trainings = true;
}

bool trainings_are_silent() {
  return silent_trainings;
}

Console::Console(bool speaks) : speaks_(speaks) {
  if (!speaks) return;
  terminal_ = launch::terminal_behind(STDERR_FILENO);
  lines_show_ = terminal_ && launch::terminal_behind(STDOUT_FILENO);
  colour_ = lines_show_ && launch::has_colour(STDOUT_FILENO);
}

Console::~Console() {
  clear();
  if (drawn_) log::begin_with("");
}

void Console::line(const std::string& text, base::TextStyle style) {
  if (!speaks_) return;
  clear();
  const bool was_whole = !lost_;
  auto shown = base::readable(text);
  if (colour_) shown = base::with_style(shown, style);
  lost_ = !output::print((drawn_ && lines_show_ ? kClearRow : "") + shown + "\n");
  if (lost_ && was_whole)
    log::warning("standard output cannot be written: the run continues without its log lines");
}

bool Console::wants_progress() const {
  return terminal_ && std::chrono::steady_clock::now() - last_ >= kRedraw;
}

void Console::progress(const Progress& progress) {
  if (wants_progress()) redraw(progress_line(progress, terminal_->width()));
}

void Console::progress(const std::string& text) {
  if (!wants_progress()) return;
  redraw(base::readable(text).substr(0, room_in(terminal_->width())));
}

void Console::redraw(const std::string& text) {
  last_ = std::chrono::steady_clock::now();
  if (!drawn_) log::begin_with(kClearRow);
  draw("\r" + text + "\033[K");
  shown_ = drawn_ = true;
}

void Console::clear() {
  if (shown_) draw(kClearRow);
  shown_ = false;
}

}  // namespace lockstep::run_folder
