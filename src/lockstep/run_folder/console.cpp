#include "lockstep/run_folder/console.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/output.h"
#include "lockstep/base/readable.h"

namespace lockstep::run_folder {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr int kBarWidth = 20;

constexpr const char* kClearRow = "\r\033[K";

// where nobody reads any more, training goes on
void draw(const std::string& text) {
  while (::write(STDERR_FILENO, text.data(), text.size()) < 0 && errno == EINTR) {
  }
}

std::string bar(int64_t done, int64_t all) {
  const auto filled = all > 0 ? static_cast<size_t>(kBarWidth * std::min(done, all) / all) : 0;
  return "[" + std::string(filled, '#') + std::string(kBarWidth - filled, '.') + "] ";
}

}  // namespace

std::string short_time(double seconds) {
  const auto s = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  if (s < 60) return format("{}s", s);
  if (s < 3600) return format("{}m{:02}s", s / 60, s % 60);
  return format("{}h{:02}m", s / 3600, s % 3600 / 60);
}

std::string progress_line(const Progress& progress, int width) {
  std::string text = format("Epoch {}/{}  step {}/{}  loss {:.4f}  {:.0f} samples/s  {} left",
                            progress.epoch + 1, progress.epochs, progress.step, progress.steps, progress.loss,
                            progress.samples_per_second, short_time(progress.seconds_left));
  const auto room = static_cast<size_t>(std::max(width - 1, 10));  // the last column would wrap
  const auto drawn = bar(progress.step, progress.steps);
  if (text.size() + drawn.size() <= room) text.insert(0, drawn);
  return text.substr(0, room);
}

Console::Console(bool speaks) : speaks_(speaks) {
  if (!speaks) return;
  terminal_ = launch::terminal_behind(STDERR_FILENO);
  lines_show_ = terminal_ && launch::terminal_behind(STDOUT_FILENO);
}

Console::~Console() {
  clear();
  if (drawn_) log::begin_with("");
}

void Console::line(const std::string& text) {
  if (!speaks_) return;
  clear();
  const bool was_whole = !lost_;
  lost_ = !output::print((drawn_ && lines_show_ ? kClearRow : "") + base::readable(text) + "\n");
  if (lost_ && was_whole)
    log::warning("the standard output cannot be written: the run goes on, its log lines are lost");
}

bool Console::wants_progress() const {
  return terminal_ && std::chrono::steady_clock::now() - last_ >= kRedraw;
}

void Console::progress(const Progress& progress) {
  if (wants_progress()) redraw(progress_line(progress, terminal_->width()));
}

void Console::progress(const std::string& text) {
  if (!wants_progress()) return;
  const auto room = static_cast<size_t>(std::max(terminal_->width() - 1, 10));
  redraw(base::readable(text).substr(0, room));
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
