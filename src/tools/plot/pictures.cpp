#include "tools/plot/pictures.h"

namespace lockstep::plot {
namespace {

constexpr double kPhone = 340, kWhole = 1160;

std::string form(const char* name, const std::string& svg) {
  return std::string("<div class=\"") + name + "\">" + svg + "</div>\n";
}

}  // namespace

// A picture's text has about its own size wherever it is seen: nothing is cut off, nothing scrolls.
const char* const kPicturesStyle = R"(
.grid{display:grid;gap:1rem;grid-template-columns:minmax(0,1fr);align-items:start;margin:.8rem 0}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:.6rem;min-width:0}
svg.ls{display:block;width:100%;height:auto;max-width:700px}
.phone,.whole{display:none}
@media(max-width:520px){.phone{display:block}.desk{display:none}}
@media(min-width:1100px){.grid{grid-template-columns:repeat(2,minmax(0,1fr))}.last{grid-column:1/-1}
.last .whole{display:block}.last .desk{display:none}.last svg.ls{max-width:none}}
)";

std::string pictures(const std::vector<Draw>& draws) {
  std::string html;
  for (size_t i = 0; i < draws.size(); ++i) {
    const bool alone = i + 1 == draws.size() && i % 2 == 0;
    html += std::string("<div class=\"card") + (alone ? " last" : "") + "\">\n" +
            form("phone", draws[i](kPhone)) + form("desk", draws[i](kWidth)) +
            (alone ? form("whole", draws[i](kWhole)) : "") + "</div>\n";
  }
  return html.empty() ? html : "<div class=\"grid\">\n" + html + "</div>\n";
}

}  // namespace lockstep::plot
