#include "trainer/cli/command_group.h"

#include <algorithm>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "trainer/cli/failure.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {

void add_job_options(Options& options, cluster::JobRequest& job) {
  options.add("site", job.site, "SITE", "a site by name (lockstep site list), or the path of its file");
  options.add("nodes", job.nodes, "N", "nodes of the job (1)");
  options.add("gpus-per-node", job.gpus_per_node, "N", "GPUs on each node (all that the site's nodes have)");
  options.add("ranks-per-node", job.ranks_per_node, "N",
              "ranks on each node (one per GPU; without GPUs the site's value, or 2)");
  options.add("cpus-per-rank", job.cores_per_rank, "N", "cores per rank (its share)");
  options.add("time", job.time, "TIME", "how long: 30m, 2h, 1h30m (30m)");
  options.add("queue", job.queue, "NAME", "queue, partition or QOS (the site's default)");
  options.add("account", job.account, "NAME", "account or project that is charged");
  options.add("storage", job.storage, "NAMES",
              "file systems that the job needs, if the site requires them (PBS)");
  options.add("name", job.name, "NAME", "the job's name (lockstep)");
  options.add("set", job.sets, "KEY=VALUE", "override a key of the config; repeatable");
}

namespace {

int print_group(const CommandGroup& group) {
  const auto command = "lockstep " + group.name;
  auto text =
      format("{}: {}\n\nusage: {} NAME [arguments]\n\n{}:\n", command, group.summary, command, group.kinds);
  for (const auto& member : group.members) text += format("  {:<10} {}\n", member.name, member.summary);
  text += format("\noptions:\n  -h, --help     this page; {} NAME --help for {} {}\n\nexamples:\n", command,
                 group.kind.starts_with('a') ? "an" : "a", group.kind);
  for (const auto& example : group.examples) text += "  " + example + "\n";
  std::fputs(text.c_str(), stdout);
  return kDone;
}

[[noreturn]] void refuse_member(const CommandGroup& group, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& member : group.members) names.push_back(member.name);
  const auto near = base::nearest(name, names);
  throw UsageError(format("unknown {} '{}'", group.kind, base::printable(name)), "lockstep " + group.name,
                   near ? format("did you mean {}?", *near) : "choose " + base::join(names, ", "));
}

}  // namespace

int run_group(const CommandGroup& group, const std::vector<std::string>& args) {
  const auto command = "lockstep " + group.name;
  if (args.empty())
    throw UsageError(format("the {} is missing", group.kind), command, format("see: {} --help", command));
  if (args[0] == "--help" || args[0] == "-h") return print_group(group);
  const auto found = std::find_if(group.members.begin(), group.members.end(),
                                  [&](const Subcommand& member) { return member.name == args[0]; });
  if (found == group.members.end()) refuse_member(group, args[0]);
  return found->run({args.begin() + 1, args.end()});
}

}  // namespace lockstep::cli
