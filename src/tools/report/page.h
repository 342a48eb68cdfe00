#pragma once
// A page of text, tables and charts, as one HTML file that needs nothing else, and as text for a terminal,
// which has no charts.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::report {

/// The first row is the head.
using Table = std::vector<std::vector<std::string>>;

/// A bar of a chart: the sizes of its parts.
struct Bar {
  std::string name;
  std::vector<double> values;
};

class Page {
 public:
  explicit Page(std::string title) : title_(std::move(title)) {}

  /// Begins a part with a heading, which the text leaves out for the first part. A part without items is
  /// left out.
  void section(const std::string& heading);
  void text(const std::string& text, const char* kind = "text");
  /// Small print.
  void note(const std::string& note) { text(note, "note"); }
  void table(const Table& rows);
  /// Of the page alone: bars, each of as many parts as `parts` names.
  void bars(const std::string& title, const std::string& y_label, const std::vector<std::string>& parts,
            const std::vector<Bar>& bars);
  /// Of the page alone: {kind: value}, with a kind that page.html draws.
  void add(const char* kind, nlohmann::ordered_json value);

  const std::string& as_text() const { return text_; }
  std::string html() const;

 private:
  std::string title_, text_, heading_;  // heading_: the text's next one
  std::optional<std::string> next_;     // the page's
  nlohmann::ordered_json sections_ = nlohmann::ordered_json::array();
};

/// Rows as columns.
Table transposed(const Table& rows);

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
