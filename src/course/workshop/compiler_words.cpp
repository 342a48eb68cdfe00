#include "course/workshop/compiler_words.h"

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <vector>

#include "course/workshop/cut_line.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace {

using Lines = std::vector<std::string>;

constexpr size_t kMostErrorLines = 12;
constexpr size_t kMostErrorBytes = 160;  // of a line
constexpr size_t kExcerpt = 2;           // the line of code, and where in it

bool holds(const std::string& line, const std::string& words) {
  return line.find(words) != std::string::npos;
}

bool is_error(const std::string& line) {
  return holds(line, " error: ") || holds(line, "undefined reference to") ||
         holds(line, "multiple definition of");
}

// "   12 |   code" and "      |   ^~~"
bool is_excerpt(const std::string& line) {
  const auto bar = line.find(" |");
  return bar != std::string::npos && line.find_first_not_of(" 0123456789") > bar;
}

// a template's error lies in its header; this line is where the learner called for it
bool leads_there(const std::string& line, const std::string& source) {
  return line.starts_with(source + ":") && holds(line, "required from here");
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

// a call that matches nothing: what is there to be called, the first of it
std::string candidate_after(const Lines& all, size_t error) {
  const std::string mark = "note: candidate";
  if (!holds(all[error], "no matching function")) return "";
  for (size_t i = error + 1; i < all.size() && !is_error(all[i]); ++i) {
    if (const auto at = all[i].find(mark); at != std::string::npos)
      return "   " + all[i].substr(at + mark.find("candidate"));
  }
  return "";
}

Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

Lines errors_in(const Lines& all, const std::string& source) {
  Lines chosen;
  std::string caller;
  for (size_t i = 0; i < all.size(); ++i) {
    if (leads_there(all[i], source)) caller = all[i];
    if (!is_error(all[i])) continue;
    if (!caller.empty() && !all[i].starts_with(source)) chosen.push_back(caller);
    caller.clear();
    chosen.push_back(all[i]);
    for (size_t next = i + 1; next < all.size() && next <= i + kExcerpt && is_excerpt(all[next]); ++next)
      chosen.push_back(all[next]);
    if (const auto candidate = candidate_after(all, i); !candidate.empty()) chosen.push_back(candidate);
  }
  return chosen;
}

}  // namespace

std::string compiler_words(const std::string& printed, const std::string& source) {
  const auto all = lines_of(printed);
  auto chosen = errors_in(all, source);
  if (chosen.empty()) chosen = all;
  chosen.resize(std::min(chosen.size(), kMostErrorLines));
  for (auto& line : chosen)
    line = cut_line(replaced(line, source, std::filesystem::path(source).filename()), kMostErrorBytes);
  return base::join(chosen, "\n");
}

}  // namespace lockstep::workshop
