#include "train/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/format.h"

namespace lockstep::train {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr int kDefaultWidth = 80;
constexpr int kBarWidth = 20;

bool is_terminal() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) && !(term && std::strcmp(term, "dumb") == 0);
}

int terminal_width() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kDefaultWidth;
}

void write_text(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // nobody reads any more: training goes on
    done += static_cast<size_t>(n);
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

Console::Console(bool speaks) : speaks_(speaks), terminal_(speaks && is_terminal()) {}

Console::~Console() {
  clear();
}

void Console::line(const std::string& text) {
  if (!speaks_) return;
  clear();
  write_text(STDOUT_FILENO, text + "\n");
}

bool Console::wants_progress() const {
  return terminal_ && std::chrono::steady_clock::now() - last_ >= kRedraw;
}

void Console::progress(const Progress& progress) {
  if (!wants_progress()) return;
  last_ = std::chrono::steady_clock::now();
  write_text(STDERR_FILENO, "\r" + progress_line(progress, terminal_width()) + "\033[K");
  shown_ = true;
}

void Console::clear() {
  if (shown_) write_text(STDERR_FILENO, "\r\033[K");
  shown_ = false;
}

}  // namespace lockstep::train
