#include "tools/cluster/hand_in.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"
#include "tools/cluster/look.h"
#include "tools/cluster/quote.h"

namespace lockstep::cluster {
namespace {

// 7, 7;cluster, 7.server, 7[].server; not a date or a share of a banner's
bool is_id(const std::string& word) {
  const auto digits = std::min(word.find_first_not_of("0123456789"), word.size());
  const bool goes_on = digits < word.size();
  if (digits == 0 || (goes_on && std::string_view(";.[").find(word[digits]) == std::string_view::npos))
    return false;
  return std::ranges::all_of(word, [](unsigned char c) { return c > 0x20 && c < 0x7F; });
}

// sites' own words may stand before it
Submitted id_in(const std::string& output) {
  const auto lines = base::split(output, '\n');
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const auto word = base::trimmed(*line);
    if (!is_id(word)) continue;
    const auto sign = std::min(word.find(';'), word.size());  // sbatch --parsable: ID;CLUSTER
    return {word.substr(0, sign), word.substr(std::min(sign + 1, word.size())), {}};
  }
  return {};
}

// a banner on the one stream must not hide what the other one says
std::string words_of(const base::Answer& answer) {
  std::vector<std::string> said;
  for (const auto& text : {base::trimmed(answer.errors), base::trimmed(answer.output)}) {
    if (!text.empty()) said.push_back(text);
  }
  return said.empty() ? "without a word" : base::join(said, "\n");
}

[[noreturn]] void refuse_submission(const SchedulerCommand& command, const base::Answer& answer,
                                    std::chrono::milliseconds patience) {
  const auto name = std::filesystem::path(command.words[0]).filename().string();
  if (answer.end == base::Answer::not_started)
    throw InputError(format("{} cannot be started", name), command.words[0],
                     "submit where the scheduler's commands are: on a login node");
  if (answer.end == base::Answer::late)
    throw Error(format("{} has not answered within {} s: nobody knows whether there is a job. It said: {}",
                       name, std::chrono::ceil<std::chrono::seconds>(patience).count(), words_of(answer)),
                shown(command), "look into the queue before you submit again");
  throw Error(format("{} refused the job (status {}): {}", name, answer.status, words_of(answer)),
              shown(command),
              "the scheduler says why: change what it names (--queue, --account, --time, --nodes, the "
              "site's file), or wait until it can be reached, and submit again");
}

}  // namespace

SchedulerCommand submit_command(const Site& site, const std::string& path, const std::string& script,
                                const std::string& cluster) {
  SchedulerCommand command{{command_word(site.submit_command())},
                           unheard_by_submission(site.scheduler, script)};
  if (site.slurm()) command.words.emplace_back("--parsable");
  if (!cluster.empty()) command.words.push_back("--clusters=" + cluster);
  command.words.push_back(path.starts_with('-') ? "./" + path : path);
  return command;
}

std::string shown(const SchedulerCommand& command) {
  std::vector<std::string> words;
  if (!command.without.empty()) words.emplace_back("env");
  for (const auto& name : command.without) words.insert(words.end(), {"-u", name});
  words.insert(words.end(), command.words.begin(), command.words.end());
  return quoted(words);
}

Submitted submit(const SchedulerCommand& command, std::chrono::milliseconds patience) {
  if (find_command(std::filesystem::path(command.words[0]).filename().string()).empty())
    throw InputError(format("there is no {} here", command.words[0]), "PATH",
                     "submit where the scheduler's commands are: on a login node; --dry-run shows the job");
  const auto answer = base::ask({.argv = command.words, .without = command.without, .apart = true}, patience);
  if (!answer.good()) refuse_submission(command, answer, patience);
  auto submitted = id_in(answer.output);
  if (submitted.id.empty())
    throw Error(format("{} took the job, and names no id: {}", command.words[0], words_of(answer)),
                shown(command), "look into the queue");
  submitted.said = base::trimmed(answer.errors);
  return submitted;
}

}  // namespace lockstep::cluster
