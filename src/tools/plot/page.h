#pragma once
// One HTML file that opens from a disk: nothing in it comes from elsewhere, light and dark, wide and narrow.

#include <string>
#include <vector>

namespace lockstep::plot {

/// Text made safe to stand in HTML or SVG.
std::string escaped(const std::string& text);

/// A table: the first row is its head. Cells are plain text.
std::string table(const std::vector<std::vector<std::string>>& rows);

/// A heading and what stands under it, as HTML.
struct Section {
  std::string heading;
  std::string body;
};

/// The whole file.
std::string page(const std::string& title, const std::vector<Section>& sections);

}  // namespace lockstep::plot
