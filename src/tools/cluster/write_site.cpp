// A site file's text from what was found.
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "tools/cluster/detect.h"
#include "tools/cluster/site_keys.h"
#include "trainer/config/numbers.h"
#include "trainer/config/value.h"

namespace lockstep::cluster {
namespace {

constexpr size_t kLongestNote = 300;

// a field as it is where nobody has set it is left out
template <class Owner>
struct Written {
  const Owner& owner;
  const Owner untouched = {};

  std::string operator()(std::string Owner::*field) const {
    return owner.*field == untouched.*field ? "" : config::yaml_text(owner.*field);
  }
  std::string operator()(int64_t Owner::*field) const {
    return owner.*field == untouched.*field ? "" : format("{}", owner.*field);
  }
  std::string operator()(std::chrono::milliseconds Owner::*field) const {
    return owner.*field == untouched.*field ? "" : config::duration_text(owner.*field);
  }
  std::string operator()(std::vector<std::string> Owner::*field) const {
    std::vector<std::string> texts;
    for (const auto& text : owner.*field) texts.push_back(config::yaml_text(text));
    return texts.empty() ? "" : "[" + base::join(texts, ", ") + "]";
  }
};

template <class Owner>
std::vector<std::string> key_lines(const std::vector<SiteKey<Owner>>& keys, const Owner& owner) {
  std::vector<std::string> lines;
  for (const auto& key : keys) {
    const auto value = std::visit(Written<Owner>{owner}, key.field);
    if (!value.empty()) lines.push_back(format("{}: {}", key.name, value));
  }
  return lines;
}

}  // namespace

std::string as_yaml(const FoundSite& found) {
  std::string text =
      "# Proposed by lockstep site detect. What this machine did not tell: whether a job needs an account,\n"
      "# modules or file systems of its own, and whether its cores follow from its GPUs (docs/sites.md).\n";
  for (const auto& note : found.notes) text += "# " + base::printable(note, kLongestNote) + "\n";
  for (const auto& line : key_lines(site_keys(), found.site)) text += line + "\n";
  if (!found.site.queues.empty()) text += "queues:\n";
  for (const auto& queue : found.site.queues)
    text += format("  {}: {{{}}}\n", config::yaml_text(queue.name),
                   base::join(key_lines(queue_keys(), queue), ", "));
  return text;
}

}  // namespace lockstep::cluster
