#pragma once
// A page of text, tables and charts, as one HTML file that needs nothing else, and as text for a terminal,
// which has no charts.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::report {

/// The first row is the head.
using Table = std::vector<std::vector<std::string>>;

/// A line of points; a point whose y is not finite is left out.
struct Series {
  std::string name;
  std::vector<double> x, y;
  bool dashed = false;  ///< a model, or a second curve of the same run
  int look = -1;        ///< number of the colour; -1 = its place in the chart
};

/// Lines over a common x. A label that ends in "(s)" or "(bytes)" gives its axis units.
struct Chart {
  std::string title, x_label, y_label;
  std::vector<Series> series;
  bool log_x = false, log_y = false;
};

/// Bars, each a stack of parts.
struct Bars {
  std::string title, y_label;
  std::vector<std::string> names;           ///< of the bars
  std::vector<std::string> parts;           ///< of a stack
  std::vector<std::vector<double>> values;  ///< [bar][part]
};

class Page {
 public:
  explicit Page(std::string title) : title_(std::move(title)) {}

  /// Begins a part with a heading, which the text leaves out for the first part.
  void section(const std::string& heading);
  void text(const std::string& text);
  /// Small print.
  void note(const std::string& text);
  void table(const Table& rows);
  /// Of the page alone, as bars() and add() are.
  void chart(const Chart& chart);
  void bars(const Bars& bars);
  /// {kind: value}, with a kind that page.html draws.
  void add(const char* kind, nlohmann::ordered_json value);

  const std::string& as_text() const { return text_; }
  std::string html() const;

 private:
  void print(const std::string& text);

  std::string title_, text_, heading_;  // heading_: the text's next one
  nlohmann::ordered_json sections_ = nlohmann::ordered_json::array();
};

/// As page.html expects it. A curve of very many points keeps its peaks.
nlohmann::ordered_json chart_json(const Chart& chart);

/// Rows as columns.
Table turned(const Table& rows);

/// For a terminal: the first column to the left, the others to the right.
std::string aligned(const Table& rows);

// Numbers with three digits and a unit that suits their size.

/// "1.5 KiB"
std::string bytes_text(double bytes);
/// "12.3 ms", "24 s", "33.3 min"
std::string seconds_text(double seconds);
/// "3.2 GFLOP"
std::string work_text(double operations);
/// "12 %", "-" for nothing
std::string percent_text(double share);

/// One run, or several side by side: the file's text. InputError where a folder is not a run folder.
std::string report(const std::vector<std::filesystem::path>& folders);

}  // namespace lockstep::report
