#include "tools/plot/page.h"

#include "lockstep/base/format.h"
#include "lockstep/base/readable.h"
#include "tools/plot/look.h"
#include "tools/plot/pictures.h"

namespace lockstep::plot {
namespace {

// With this nothing in the file can fetch or run anything, whatever a run's names were.
constexpr const char* kPolicy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

constexpr const char* kStyle = R"(
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main,header{max-width:1320px;margin:0 auto;padding:0 clamp(.8rem,3vw,2.5rem)}
header{padding-top:1.6rem}
h1{font-size:clamp(1.4rem,4vw,2.1rem);line-height:1.2;margin:0 0 .6rem;overflow-wrap:anywhere}
h2{font-size:1.2rem;margin:2.2rem 0 .8rem;padding-bottom:.3rem;border-bottom:1px solid var(--line)}
h3{font-size:1rem;margin:1.2rem 0 .4rem;overflow-wrap:anywhere}
p{margin:.4rem 0;overflow-wrap:anywhere;white-space:pre-line}
a{color:var(--ls0)}
nav{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;font-size:.92rem}
nav a{text-decoration:none}
.soft{color:var(--soft)}
.scroll{overflow-x:auto;width:fit-content;max-width:100%;--edge:2.2rem 100% no-repeat local;--shade:.9rem calc(100% - 2px) no-repeat scroll;background:
linear-gradient(to right,var(--paper) 40%,transparent) left/var(--edge),
linear-gradient(to left,var(--paper) 40%,transparent) right/var(--edge),
linear-gradient(to right,var(--soft),transparent) left/var(--shade),
linear-gradient(to left,var(--soft),transparent) right/var(--shade)}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.28rem .8rem .28rem 0;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--soft);font-weight:600;white-space:nowrap}
th.n,td.n{text-align:right;white-space:nowrap}
td{max-width:34rem;overflow-wrap:break-word;white-space:pre-line}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--card);border:1px solid var(--line);border-radius:10px;padding:.8rem;font-size:.82rem;line-height:1.45}
details summary{cursor:pointer;color:var(--ls0);margin:.4rem 0}
table.m td,table.m th{padding:.22rem .5rem;border:1px solid var(--line)}
.shots{display:grid;gap:.8rem;grid-template-columns:repeat(auto-fill,minmax(130px,1fr))}
figure{margin:0;padding:.5rem;background:var(--card);border:1px solid var(--line);border-radius:10px}
figure img{width:100%;image-rendering:pixelated;border-radius:4px;display:block}
figcaption{font-size:.82rem;margin-top:.3rem;overflow-wrap:anywhere}
ul{padding-left:1.2rem}
@media print{.scroll{overflow:visible}}
)";

struct Safe {
  char letter;
  const char* written;
};
constexpr Safe kSafe[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};

const char* written(char letter) {
  for (const auto& row : kSafe) {
    if (row.letter == letter) return row.written;
  }
  return nullptr;
}

bool is_number(const std::string& cell) {
  constexpr size_t kSign = 1;  // at most, before the first digit
  return cell.find_first_of("0123456789") <= kSign &&
         cell.find_first_not_of("0123456789.,+-eE%kMG ") == std::string::npos;
}

// All that is in the column, below its head; some numbers among words stay with them.
bool is_of_numbers(const std::vector<std::vector<std::string>>& rows, size_t column) {
  bool any = false;
  for (size_t i = 1; i < rows.size(); ++i) {
    if (column >= rows[i].size() || rows[i][column].empty() || rows[i][column] == "–" ||
        rows[i][column] == "-")
      continue;
    if (!is_number(rows[i][column])) return false;
    any = true;
  }
  return any;
}

std::string styled_head(const std::string& title) {
  return "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"" +
         std::string(kPolicy) +
         "\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta name=\"color-scheme\" content=\"light dark\">\n<title>" +
         escaped(title) + "</title>\n<style>\n:root{" + light_colours() +
         "}\n@media(prefers-color-scheme:dark){:root{" + dark_colours() + "}}" + kStyle + kPicturesStyle +
         "</style>\n</head>\n";
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char letter : base::readable(text)) {
    if (const char* instead = written(letter)) {
      safe += instead;
    } else {
      safe += letter;
    }
  }
  return safe;
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  if (rows.empty()) return "";
  std::string html = "<div class=\"scroll\"><table>\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string tag = i == 0 ? "th" : "td";
    html += "<tr>";
    for (size_t column = 0; column < rows[i].size(); ++column) {
      html += "<" + tag + (is_of_numbers(rows, column) ? " class=\"n\">" : ">") + escaped(rows[i][column]) +
              "</" + tag + ">";
    }
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

std::string page(const std::string& title, const std::vector<Section>& sections) {
  auto html = styled_head(title) + "<body>\n<header><h1>" + escaped(title) + "</h1>\n<nav>";
  for (size_t i = 0; i < sections.size() && sections.size() > 2; ++i) {
    html += format("<a href=\"#s{}\">{}</a> ", i, escaped(sections[i].heading));
  }
  html += "</nav></header>\n<main>\n";
  for (size_t i = 0; i < sections.size(); ++i) {
    html += format("<section id=\"s{}\">\n<h2>{}</h2>\n", i, escaped(sections[i].heading)) +
            sections[i].body + "\n</section>\n";
  }
  return html + "</main>\n</body>\n</html>\n";
}

}  // namespace lockstep::plot
