#pragma once
// What a person sees of a run: plain lines on stdout, and on a terminal one progress line that redraws.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/text.h"
#include "lockstep/launch/process/terminal.h"

namespace lockstep::run_folder {

/// Where a run stands, for the progress line.
struct Progress {
  int64_t epoch = 0, epochs = 0;  // epoch counts from 0
  int64_t step = 0, steps = 0;    // in this epoch
  double loss = 0;
  double samples_per_second = 0;
  double seconds_left = 0;
};

/// One line of at most `width` columns: first the bar gets shorter, then whole parts are left out.
std::string progress_line(const Progress& progress, int width);

/// 45s, 3m05s, 2h07m.
std::string short_time(double seconds);

/// "12.3 ms", "24.1 s".
std::string step_time(double seconds);

/// For -q: a training that begins from now on prints no lines.
void silence_trainings();
bool trainings_are_silent();

class Console {
 public:
  /// The progress line shows only if stderr is a terminal, also through mpirun.
  explicit Console(bool speaks);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// A line of the log, in this style if the terminal has colors.
  void line(const std::string& text, base::TextStyle style = base::TextStyle::plain);
  /// Redraws the progress line, at most ten times a second.
  void progress(const Progress& progress);
  /// The same with another text, cut to the terminal's width.
  void progress(const std::string& text);
  bool wants_progress() const;
  void clear();

 private:
  void redraw(const std::string& text);

  bool speaks_;
  std::optional<launch::Terminal> terminal_;  // behind stderr
  bool lines_show_ = false;                   // on a terminal too
  bool colour_ = false;                       // there
  // Under mpirun stdout and stderr are two pipes, and nobody knows which arrives first: once a progress line
  // was drawn, every line clears the row that it begins in.
  bool shown_ = false, drawn_ = false;
  bool lost_ = false;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace lockstep::run_folder
