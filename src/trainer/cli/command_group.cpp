#include "trainer/cli/command_group.h"

#include <algorithm>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "trainer/cli/failure.h"

namespace lockstep::cli {
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
