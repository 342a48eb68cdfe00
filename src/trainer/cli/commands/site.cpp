// lockstep site list|show|detect|keys: what is known of clusters, and a proposal for this one.
#include "tools/cluster/site.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/readable.h"
#include "lockstep/base/text.h"
#include "tools/cluster/detect.h"
#include "tools/cluster/site_reference.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {
namespace {

/// What the command line names besides the action.
struct Named {
  std::string site, scheduler;
};

int list_sites(const Named&) {
  for (const auto& site : cluster::known_sites()) {
    const auto what =
        site.trouble.empty() ? site.about : format("cannot be read: {} ({})", site.trouble, site.where);
    const auto place = site.hides.empty() ? "" : format(" ({}, before lockstep's own)", site.path);
    output::line(format("{:<12} {:<6} {}{}", site.name, site.scheduler, what, place));
  }
  output::line("looked for in " + base::join(cluster::site_folders(), ", "));
  output::check();
  return kDone;
}

int show_site(const Named& named) {
  const auto& name = named.site;
  if (name.empty()) throw InputError("which site?", "lockstep site show", "lockstep site list names them");
  const auto site = cluster::load_site(name);
  if (!site.hides.empty())
    log::warning(format("{} counts, not {}, which ships with lockstep", site.path, site.hides));
  output::line("# " + site.path);
  output::print(base::readable(base::read_text(site.path)));
  output::check();
  return kDone;
}

int detect(const Named& named) {
  output::print(cluster::detect_site(named.scheduler));
  output::check();
  return kDone;
}

int keys(const Named&) {
  output::print(cluster::site_reference());
  output::check();
  return kDone;
}

struct SiteAction {
  const char* name;
  int (*run)(const Named&);
};
constexpr SiteAction kSiteActions[] = {
    {"list", list_sites}, {"show", show_site}, {"detect", detect}, {"keys", keys}};

}  // namespace

int run_site(const std::vector<std::string>& args) {
  std::string action;
  Named named;
  Options options(
      "site", "what is known of clusters, and a proposal for this one",
      {"lockstep site list", "lockstep site show gadi", "lockstep site detect > sites/mine.yaml"});
  options.positional("list|show|detect|keys", action, "what to do");
  options.positional("NAME", named.site, "for show: a site by name, or the path of its file", false);
  options.add("scheduler", named.scheduler, "slurm|pbs", "for detect: whom to ask where both are");
  if (!options.parse(args)) return kDone;
  for (const auto& row : kSiteActions) {
    if (action == row.name) return row.run(named);
  }
  throw InputError(format("site cannot '{}'", base::printable(action)), "lockstep site",
                   "lockstep site list, show, detect or keys");
}

}  // namespace lockstep::cli
