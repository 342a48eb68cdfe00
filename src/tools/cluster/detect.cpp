#include "tools/cluster/detect.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <sstream>

#include "lockstep/base/answer.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/base/words.h"
#include "tools/cluster/scheduler.h"
#include "tools/cluster/unheard.h"

namespace lockstep::cluster {
namespace {

constexpr std::chrono::seconds kQueryPatience{10};

// Asks, and notes what did not answer.
std::optional<std::string> ask_and_note(const std::vector<std::string>& command,
                                        std::vector<std::string>& silent) {
  auto argv = command;
  argv[0] = find_command(command[0]);
  if (argv[0].empty()) return std::nullopt;
  const auto answer = base::ask({.argv = argv, .without = unheard_by_queries()}, kQueryPatience);
  if (answer.good()) return answer.output;
  const auto said = base::trimmed(answer.errors);
  silent.push_back(format("{} failed, or gave no answer in {} s{}", base::join(command, " "),
                          kQueryPatience.count(), said.empty() ? "" : ": " + base::printable(said, 200)));
  return std::nullopt;
}

std::string asked_as_text(const std::vector<std::string>& command, std::vector<std::string>& silent) {
  return ask_and_note(command, silent).value_or("");
}

std::optional<FoundSite> detect_slurm(std::vector<std::string>& silent) {
  const auto text = ask_and_note({"sinfo", "-h", "-o", kSinfoFormat}, silent);
  if (!text) return std::nullopt;
  auto found = read_sinfo(*text);
  std::istringstream config(asked_as_text({"scontrol", "show", "config"}, silent));
  for (std::string line; std::getline(config, line);) {
    if (line.starts_with("MpiDefault") || line.starts_with("AccountingStorageEnforce"))
      found.notes.push_back("slurm.conf: " + line);
  }
  return found;
}

std::optional<FoundSite> detect_pbs(std::vector<std::string>& silent) {
  const auto queues = ask_and_note({"qstat", "-Q", "-f"}, silent);
  if (!queues) return std::nullopt;
  if (find_command("pbsnodes").empty()) silent.emplace_back("there is no pbsnodes here");
  return read_pbs(*queues, asked_as_text({"qstat", "-B", "-f"}, silent),
                  asked_as_text({"pbsnodes", "-a"}, silent));
}

struct Detected {
  const char* name;
  const char* command;
  std::optional<FoundSite> (*detect)(std::vector<std::string>&);
};
constexpr Detected kDetected[] = {{"slurm", "sinfo", detect_slurm}, {"pbs", "qstat", detect_pbs}};

void note_software(FoundSite& found, std::vector<std::string>& silent) {
  for (const char* launcher : {"mpirun", "mpiexec"}) {
    const auto version = asked_as_text({launcher, "--version"}, silent);
    if (!version.empty())
      found.notes.push_back(format("{}: {}", launcher, version.substr(0, version.find('\n'))));
  }
  const char* modules = std::getenv("LOADEDMODULES");
  if (modules && *modules)
    found.notes.push_back(
        format("modules that are loaded here; name under `modules` those that a job needs: {}", modules));
}

}  // namespace

std::string detect_site(const std::string& scheduler) {
  const auto row = std::ranges::find(kDetected, scheduler, &Detected::name);
  if (!scheduler.empty() && row == std::end(kDetected))
    throw InputError(format("there is no scheduler '{}' to ask", base::printable(scheduler)),
                     "lockstep site detect", "use --scheduler slurm or --scheduler pbs");
  std::vector<std::string> silent;
  std::optional<FoundSite> found;
  for (const auto& one : kDetected) {
    if (!scheduler.empty() && scheduler != one.name) continue;
    if (!found) {
      found = one.detect(silent);
    } else if (!find_command(one.command).empty()) {
      found->notes.push_back(
          format("{} is here, too: lockstep site detect --scheduler {}", one.command, one.name));
    }
  }
  if (!found)
    throw Error(
        scheduler.empty() ? "no scheduler answers here" : format("{} does not answer here", scheduler),
        silent.empty() ? "neither sinfo nor qstat is on the PATH" : base::join(silent, "; "),
        "run it on a login node of the cluster, or begin with  lockstep site show slurm");
  note_software(*found, silent);
  found->notes.insert(found->notes.end(), silent.begin(), silent.end());
  return as_yaml(*found);
}

}  // namespace lockstep::cluster
