// How the ranks of a learner's program ended, in a learner's words.
#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <regex>

#include "course/workshop/attempt.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace {

struct Crash {
  int signal;
  const char *what, *think;
};

constexpr Crash kCrashes[] = {
    {SIGSEGV, "accessed invalid memory",
     "look for an index past the end, an undefined tensor, or endless recursion"},
    {SIGBUS, "accessed invalid memory", "look for an index past the end"},
    {SIGFPE, "divided an integer by zero", "which number may be 0 on this rank but not on others?"},
    {SIGABRT, "gave up", "look for an uncaught exception or an assert()"},
    {SIGILL, "reached the end of a function without a return", "add a return on every path"},
    {SIGKILL, "was killed by another process", "check the free memory of this machine"},
    {SIGXFSZ, "wrote too large a file", "look for a loop that never ends"},
};

bool has_failed(const Ending& ending) {
  return ending.why == Why::left && ending.status != 0;
}

// It failed because of another rank.
bool lost_another(const Ending& ending) {
  constexpr Code kOfOthers[] = {Code::not_joined, Code::rank_lost, Code::rank_late, Code::calls_differ};
  return ending.error && std::ranges::find(kOfOthers, ending.error->code) != std::end(kOfOthers);
}

// As lockstep reports it, C++, or libtorch.
bool wanted_memory(const Ending& ending) {
  const auto says = [&](const char* words) { return ending.printed.find(words) != std::string::npos; };
  return !ending.is_well() && ((ending.error && ending.error->code == Code::no_memory) ||
                               says("std::bad_alloc") || says("can't allocate memory"));
}

std::string tail(const std::string& printed) {
  constexpr size_t kMost = 1200;
  return base::readable(printed.size() > kMost ? "..." + printed.substr(printed.size() - kMost) : printed);
}

std::string list(const std::vector<int>& ranks) {
  Words words;
  for (const int rank : ranks) words.push_back(std::to_string(rank));
  return (ranks.size() == 1 ? "rank " : "ranks ") + base::join(words, " and ");
}

// "the ranks are in two different calls: rank 0 in all-reduce, rank 1 in barrier", or how their equal calls
// differ; empty for another error.
std::string different_calls(const Fault& error) {
  std::map<std::string, std::vector<int>> ranks;  // by call
  for (const auto& seen : error.seen) ranks[seen.call].push_back(seen.rank);
  if (error.code != Code::calls_differ) return "";
  if (ranks.size() < 2) return error.met_in.waited > 0 ? "" : error.what;  // the sizes differ
  Words words;
  for (const auto& [call, those] : ranks) words.push_back(list(those) + " in " + call);
  const auto count = ranks.size() == 2 ? std::string("two") : std::to_string(ranks.size());
  return format("the ranks are in {} different calls: {}", count, base::join(words, ", "));
}

// "rank 0 waited 4 s in all-reduce (collective 2), and in vain: rank 1 has died"; empty for another error.
std::string waited_in_vain(int rank, const Fault& error) {
  static const std::regex place_in_gloo(R"(\[/[^\]]*\] | \[[\d.:a-f]+\]:\d+)");
  const auto& met = error.met_in;
  if (met.number == 0) return "";
  Words words;
  for (const auto& seen : error.seen)
    if (!seen.state.empty())
      words.push_back(format("rank {} {}", seen.rank, std::regex_replace(seen.state, place_in_gloo, "")));
  return format("rank {} waited {}in {} (collective {}) without a result: {}", rank,
                met.waited > 0 ? format("{} s ", met.waited) : "", met.call, met.number,
                words.empty() ? "no rank is known to be at fault" : base::join(words, "; "));
}

[[noreturn]] void tell_failure(const RankRun& rank, const std::string& folder) {
  const auto& ending = rank.ending();
  const auto error = ending.error.value_or(Fault{});
  const auto apart = different_calls(error);
  if (const auto words = apart.empty() ? waited_in_vain(rank.rank(), error) : apart; !words.empty()) {
    const auto log = std::filesystem::path(rank_log(folder, rank.rank()));
    throw CheckFailure(
        words,
        "check which branch each rank takes: every rank must call each collective, in the same "
        "order and with the same sizes\n(the full output: " +
            log.lexically_proximate(std::filesystem::current_path()).string() + ")");
  }
  if (ending.printed.empty())
    throw CheckFailure(format("rank {} exited with status {} and no message", rank.rank(), ending.status),
                       "find where it exits");
  throw CheckFailure(
      format("rank {} exited with an error:\n{}", rank.rank(), base::trimmed(tail(ending.printed))));
}

[[noreturn]] void tell_crash(const std::vector<int>& ranks, const Ending& ending) {
  const auto* known = std::ranges::find(kCrashes, ending.status, &Crash::signal);
  const bool is_known = known != std::end(kCrashes);
  const auto printed = base::trimmed(tail(ending.printed));
  throw CheckFailure(
      format("{} crashed: it {} ({}){}{}", list(ranks), is_known ? known->what : "was ended by a signal",
             ::strsignal(ending.status), printed.empty() ? "" : ":\n", printed),
      is_known ? known->think : "");
}

}  // namespace

void require_good_end(const Run& run, const ProgramLimits& limits, const std::string& folder) {
  const auto those = [&](auto is) {
    std::vector<int> ranks;
    for (const auto& rank : run.ranks)
      if (is(rank.ending())) ranks.push_back(rank.rank());
    return ranks;
  };
  const auto rank = [&](int number) -> const RankRun& { return run.ranks[static_cast<size_t>(number)]; };
  const auto stopped = [](Why why) { return [why](const Ending& ending) { return ending.why == why; }; };
  // the causes first, then what follows from them
  if (!those(stopped(Why::not_started)).empty())
    throw Error("cannot start more programs", "this machine", "check whether it is full, and try again");
  if (const auto ranks = those(wanted_memory); !ranks.empty())
    throw CheckFailure(format("{} asked for more memory than {} GB", list(ranks), limits.memory >> 30),
                       "check whether a size is in bytes or elements, and whether something grows in a loop");
  if (const auto ranks = those(stopped(Why::signal)); !ranks.empty())
    tell_crash(ranks, rank(ranks[0]).ending());
  if (const auto ranks = those(stopped(Why::too_much_output)); !ranks.empty())
    throw CheckFailure(list(ranks) + " printed endlessly, so the check stopped the run",
                       "look for a loop that never ends");
  if (const auto ranks = those([](const Ending& e) { return has_failed(e) && !lost_another(e); });
      !ranks.empty())
    tell_failure(rank(ranks[0]), folder);
  if (const auto ranks = those([](const Ending& e) { return e.why == Why::too_long && e.was_busy; });
      !ranks.empty())
    throw CheckFailure(format("{} did not finish computing within {:.0f} s, so the check stopped the run",
                              list(ranks), rank(ranks[0]).ending().seconds),
                       "check that every loop ends");
  if (const auto ranks = those(has_failed); !ranks.empty()) tell_failure(rank(ranks[0]), folder);
  if (const auto ranks = those(stopped(Why::too_long)); !ranks.empty())
    throw CheckFailure(
        format("{} waited for more than {:.0f} s, so the check stopped the run", list(ranks),
               rank(ranks[0]).ending().seconds),
        "find what it waits for: each expected message must be sent, and all ranks must call each "
        "collective");
}

}  // namespace lockstep::workshop
