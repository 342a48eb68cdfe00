// lockstep site list|show|detect: what is known of clusters, and a proposal for this one.
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/output.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/options.h"
#include "lockstep/cluster/detect.h"
#include "lockstep/cluster/site.h"

namespace lockstep::cli {
namespace {

using cluster::KnownSite;

int list(const std::string&) {
  for (const auto& site : cluster::known_sites()) {
    const auto what =
        site.trouble.empty() ? site.about : format("cannot be read: {} ({})", site.trouble, site.where);
    output::line(format("{:<12} {:<6} {}", site.name, site.scheduler, what));
  }
  output::line("looked for in " + base::join(cluster::site_folders(), ", "));
  output::check();
  return kDone;
}

int show(const std::string& name) {
  if (name.empty()) throw InputError("which site?", "lockstep site show", "lockstep site list names them");
  const auto site = cluster::load_site(name);
  output::line("# " + site.path);
  output::print(base::read_text(site.path));
  output::check();
  return kDone;
}

int detect(const std::string&) {
  output::print(cluster::detect_site());
  output::check();
  return kDone;
}

struct Action {
  const char* name;
  int (*run)(const std::string&);
};
constexpr Action kActions[] = {{"list", list}, {"show", show}, {"detect", detect}};

}  // namespace

int run_site(const std::vector<std::string>& args) {
  std::string action, name;
  Options options(
      "site", "what is known of clusters, and a proposal for this one",
      {"lockstep site list", "lockstep site show gadi", "lockstep site detect > sites/mine.yaml"});
  options.positional("list|show|detect", action, "what to do");
  options.positional("NAME", name, "for show: a site by name, or the path of its file", false);
  if (!options.parse(args)) return kDone;
  for (const auto& row : kActions) {
    if (action == row.name) return row.run(name);
  }
  throw InputError(format("site cannot '{}'", base::printable(action)), "lockstep site",
                   "lockstep site list, show or detect");
}

}  // namespace lockstep::cli
