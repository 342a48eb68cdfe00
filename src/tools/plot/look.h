#pragma once
// How everything looks: colours that colour-blind eyes tell apart, for light and dark, and the parts that all
// pictures share.

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::plot {

/// The colours as CSS variables, to stand in a rule of the page or of a picture that is a file by itself.
std::string light_colours();
std::string dark_colours();

/// The colour of the nth series or part.
std::string colour(size_t n);

/// Between the axes: how high, and what stays free left and right of it.
inline constexpr double kPlotHeight = 220, kPlotLeft = 62, kPlotRight = 18;
/// What the y axis counts stands above its marks: how far left, how far above the plot, and what both take.
inline constexpr double kLabelLeft = 8, kLabelAbove = 15, kAbovePlot = 30;

/// The <svg> element around what is drawn.
std::string picture(const std::string& title, double width, double height, const std::string& inside);

/// A text; `anchor` is start, middle or end. The text is made safe.
std::string words(double x, double y, const std::string& anchor, const std::string& text,
                  const std::string& kind = "");

/// How a line is drawn.
struct LineLook {
  size_t n;  // past the colours the lines are dotted
  bool dashed, faint = false;
};
/// Its class and its colour, as attributes.
std::string line_look(const LineLook& look);

struct LegendEntry {
  std::string name;
  bool dashed = false;
  int look = -1;  // -1 = its place in the row
  bool faint = false;
};

/// The colour and mark of what stands at `place`.
inline size_t look_of(int look, size_t place) {
  return look < 0 ? place : static_cast<size_t>(look);
}

/// The title, and under it the legend where there is more than one entry; `bottom` is where they end.
std::string heading(const std::string& title, const std::vector<LegendEntry>& entries, bool boxes,
                    double width, double& bottom);

/// About how wide a text is.
double width_of(const std::string& text);
/// The text, shortened where it is wider than that.
std::string fitting(const std::string& text, double width);
/// In rows no wider than that, broken between words; what so many rows have no room for is shortened.
std::vector<std::string> broken(const std::string& text, double width, size_t most_rows);

/// A coordinate in few letters.
std::string at(double value);

/// At most so many letters of UTF-8 text, the last an ellipsis where some are missing.
std::string shortened(const std::string& text, size_t letters);
size_t letters_of(const std::string& text);

}  // namespace lockstep::plot
