#pragma once
// A plot from numbers: for a page as SVG that reads on light and dark, for a terminal as text.

#include <string>
#include <vector>

namespace lockstep::plot {

/// A line of points; a point whose y is not finite is left out.
struct Series {
  std::string name;
  std::vector<double> x, y;
  bool dashed = false;  ///< a model beside what was measured
  int look = -1;        ///< which colour and mark: the same number, the same ones; -1 = its place in the row
  bool faint = false;   ///< behind the others and grey; with no name it is not in the legend
};

/// Lines over a common x.
struct Chart {
  std::string title;
  std::string x_label, y_label;
  std::vector<Series> series;
  bool log_x = false, log_y = false;
  std::vector<double> also = {};  ///< what the y axis has room for besides
};

/// Bars side by side, each a stack of parts: phases a rank, memory a device.
struct Bars {
  std::string title;
  std::string y_label;
  std::vector<std::string> names;           ///< of the bars
  std::vector<std::string> parts;           ///< of a stack; one part = plain bars
  std::vector<std::vector<double>> values;  ///< [bar][part]
};

/// How wide a picture is where nothing else is said; text in it is 12 high.
inline constexpr double kWidth = 560;

/// An <svg> element, with no script and nothing from elsewhere; it takes its colours from the page, and
/// brings its own where it is a file by itself.
std::string svg(const Chart& chart, double width = kWidth);
std::string svg(const Bars& bars, double width = kWidth);

/// For a terminal: at most `width` columns wide, with no colour.
std::string text(const Chart& chart, int width = 78);
std::string text(const Bars& bars, int width = 78);

}  // namespace lockstep::plot
