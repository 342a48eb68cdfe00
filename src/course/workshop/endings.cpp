#include "course/workshop/endings.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/readable.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace {

constexpr double kGiga = double{1 << 30}, kMega = double{1 << 20};

struct Crash {
  int signal;
  const char* what;
  const char* think;
};

constexpr Crash kCrashes[] = {
    {SIGSEGV, "touched memory that is not its own",
     "an index behind the end, a tensor that is not there, a function that calls itself for ever?"},
    {SIGBUS, "touched memory that is not its own", "an index behind the end?"},
    {SIGFPE, "divided a whole number by zero", "which number may be 0 on this rank, and not on others?"},
    {SIGABRT, "gave up", "an exception that nobody caught, or an assert()"},
    {SIGILL, "came to the end of a function that returns nothing", "is there a return on every way?"},
    {SIGKILL, "was killed from outside", "has this machine memory left?"},
    {SIGXCPU, "computed without end, and was stopped", "does every loop come to an end?"},
};

// the last lines of what it printed
std::string tail(const std::string& printed) {
  constexpr size_t kMost = 1200;
  auto text =
      base::readable(printed.size() > kMost ? "..." + printed.substr(printed.size() - kMost) : printed);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::string below(const std::string& printed) {
  const auto text = tail(printed);
  return text.empty() ? "" : ":\n" + text;
}

std::string list(const std::vector<int>& ranks) {
  std::vector<std::string> words;
  for (const int rank : ranks) words.push_back(std::to_string(rank));
  return (ranks.size() == 1 ? "rank " : "ranks ") + base::join(words, " and ");
}

bool failed(const Ending& ending) {
  return ending.why == Why::left && ending.status != 0;
}

std::string were_stopped(const std::vector<int>& ranks) {
  return ranks.size() == 1 ? "was stopped" : "were stopped";
}

// it met what another rank did
bool lost_another(const Ending& ending) {
  constexpr Code kOfOthers[] = {Code::not_joined, Code::rank_lost, Code::rank_late, Code::calls_differ};
  return ending.error && std::ranges::find(kOfOthers, *ending.error) != std::end(kOfOthers);
}

// as lockstep says it, or who knows nothing of lockstep: C++ and libtorch
bool wanted_memory(const Ending& ending) {
  constexpr const char* kWords[] = {"std::bad_alloc", "can't allocate memory"};
  return !ending.is_well() && (ending.error == Code::no_memory ||
                               std::any_of(std::begin(kWords), std::end(kWords), [&](const char* words) {
                                 return ending.printed.find(words) != std::string::npos;
                               }));
}

class Diagnosis {
 public:
  Diagnosis(const Run& run, const ProgramLimits& limits, const std::string& folder)
      : run_(run), limits_(limits), folder_(folder) {}

  // the causes first, then what follows from them
  void run() const {
    if (those([](const Ending& ending) { return ending.why == Why::not_started; }).size() > 0)
      throw Error("no more programs can be started", "this machine", "is it full? Try again in a moment");
    greedy();
    crashed();
    loud();
    if (const auto* rank = first([](const Ending& e) { return failed(e) && !lost_another(e); })) fail(*rank);
    endless();
    if (const auto* rank = first(failed)) fail(*rank);
    waiting();
  }

 private:
  template <class Is>
  std::vector<int> those(Is is) const {
    std::vector<int> ranks;
    for (const auto& rank : run_.ranks) {
      if (is(rank.ending())) ranks.push_back(rank.rank());
    }
    return ranks;
  }

  template <class Is>
  const RankRun* first(Is is) const {
    const auto found = std::find_if(run_.ranks.begin(), run_.ranks.end(),
                                    [&](const RankRun& rank) { return is(rank.ending()); });
    return found == run_.ranks.end() ? nullptr : &*found;
  }

  const Ending& ending(int rank) const { return run_.ranks[static_cast<size_t>(rank)].ending(); }

  void greedy() const {
    const auto ranks = those(wanted_memory);
    if (!ranks.empty())
      throw Endless(
          format("{} asked for more memory than {:g} GB", list(ranks),
                 static_cast<double>(limits_.memory) / kGiga),
          "is a size counted in bytes or in elements? Does something grow with every turn of a loop?");
    const auto together = those([](const Ending& e) { return e.why == Why::too_much_memory; });
    if (!together.empty())
      throw NotYet(
          format("{} had more memory than {:g} GB together, with what lies in /dev/shm, and {}",
                 list(together), static_cast<double>(limits_.together) / kGiga, were_stopped(together)),
          "each rank's copy counts: does something grow with every turn of a loop?");
    const auto writers = those([](const Ending& e) { return e.why == Why::signal && e.status == SIGXFSZ; });
    if (!writers.empty())
      throw NotYet(format("{} wrote a file of more than {:g} MB, and {}", list(writers),
                          static_cast<double>(limits_.file) / kMega, were_stopped(writers)),
                   "is there a loop that never ends?");
  }

  void crashed() const {
    const auto* rank = first([](const Ending& ending) { return ending.why == Why::signal; });
    if (!rank) return;
    const int signal = rank->ending().status;
    const auto ranks = those([&](const Ending& e) { return e.why == Why::signal && e.status == signal; });
    const auto known = std::find_if(std::begin(kCrashes), std::end(kCrashes),
                                    [&](const Crash& row) { return row.signal == signal; });
    const bool is_known = known != std::end(kCrashes);
    throw NotYet(
        format("{} crashed: it {} ({}){}", list(ranks), is_known ? known->what : "was ended by a signal",
               ::strsignal(signal), below(rank->ending().printed)),
        is_known ? known->think : "");
  }

  void loud() const {
    const auto ranks = those([](const Ending& ending) { return ending.why == Why::too_much_output; });
    if (!ranks.empty())
      throw NotYet(format("{} printed without end, and {}", list(ranks), were_stopped(ranks)),
                   "is there a loop that never ends?");
  }

  [[noreturn]] void fail(const RankRun& rank) const {
    const auto& printed = rank.ending().printed;
    const auto log = std::filesystem::path(rank_log(folder_, rank.rank()))
                         .lexically_proximate(std::filesystem::current_path());
    const auto apart = different_calls(printed);
    if (const auto words = apart.empty() ? plain_words(rank.rank(), printed) : apart; !words.empty())
      throw NotYet(
          words,
          "every rank calls each collective, in the same order and with the same sizes: which way does each "
          "take?\n(all that it said: " +
              log.string() + ")");
    if (printed.empty())
      throw NotYet(format("rank {} left with status {}, and said nothing", rank.rank(), rank.ending().status),
                   "where does it leave?");
    throw NotYet(format("rank {} left with an error:\n{}", rank.rank(), tail(printed)));
  }

  void endless() const {
    const auto ranks = those([](const Ending& e) { return e.why == Why::too_long && e.was_busy; });
    if (ranks.empty()) return;
    throw Endless(format("{} still computed after {:.0f} s, and {}", list(ranks),
                         ending(ranks.front()).seconds, were_stopped(ranks)),
                  "does every loop come to an end?");
  }

  void waiting() const {
    const auto ranks = those([](const Ending& e) { return e.why == Why::too_long; });
    if (ranks.empty()) return;
    throw NotYet(format("{} still waited after {:.0f} s, and {}", list(ranks), ending(ranks.front()).seconds,
                        were_stopped(ranks)),
                 "for whom? Each message that is awaited must be sent, each collective called by all ranks");
  }

  const Run& run_;
  const ProgramLimits& limits_;
  const std::string& folder_;
};

// "(host n1, pid 2488)" and "[/gloo/pair.cc:547]" are for who runs a job
std::string without_places(const std::string& text) {
  static const std::regex place(R"( \(host [^()]*, pid \d+\)| \[/[^\]]*\]| \[[\d.:a-f]+\]:\d+)");
  return std::regex_replace(text, place, "");
}

using Calls = std::vector<std::pair<std::string, std::string>>;  // "rank 0", "all-reduce"

// Who is in which call, by the line behind the opening words.
Calls calls_behind(const std::string& opening, const std::regex& place, const std::string& printed) {
  const auto begin = printed.find(opening);
  if (begin == std::string::npos) return {};
  const auto from = begin + opening.size();
  const auto line = without_places(printed.substr(from, printed.find('\n', from) - from));
  Calls calls;
  for (std::sregex_iterator found(line.begin(), line.end(), place), end; found != end; ++found)
    calls.emplace_back((*found)[1], (*found)[2]);
  return calls;
}

// Empty where all are in the same.
std::string in_words(const Calls& calls) {
  std::set<std::string> kinds;
  std::vector<std::string> ranks;
  for (const auto& [rank, call] : calls) {
    kinds.insert(call);
    ranks.push_back(rank + " in " + call);
  }
  if (kinds.size() < 2) return {};
  const auto count = kinds.size() == 2 ? std::string("two") : std::to_string(kinds.size());
  return format("the ranks are in {} different calls: {}", count, base::join(ranks, ", "));
}

}  // namespace

std::string rank_log(const std::string& folder, int rank) {
  return folder + format("/rank-{}.log", rank);
}

std::string plain_words(int rank, const std::string& printed) {
  constexpr size_t kLongestLine = 2000;
  static const std::regex form(
      R"(error: ([a-z -]+) \(collective (\d+)\) (failed|timed out after ([\d.]+ s)): (.*))");
  std::smatch found;
  std::istringstream lines(printed);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > kLongestLine || !std::regex_search(line, found, form)) continue;
    const auto time = found[4].matched ? found[4].str() + " " : "";
    return format("rank {} waited {}in {} (collective {}), and in vain: {}", rank, time, found[1].str(),
                  found[2].str(), without_places(found[5].str()));
  }
  return {};
}

std::string different_calls(const std::string& printed) {
  // from ranks that waited for each other, and from one that found it at once: "rank 0: barrier; rank 1: ..."
  static const std::regex waiting(R"((rank \d+) in ([a-z -]*[a-z]))"),
      found(R"((rank \d+): ([a-z -]*[a-z]))");
  const auto calls = calls_behind("every rank came, and none has an answer: ", waiting, printed);
  return in_words(calls.empty() ? calls_behind("the ranks' calls differ: ", found, printed) : calls);
}

void require_good_end(const Run& run, const ProgramLimits& limits, const std::string& folder) {
  Diagnosis(run, limits, folder).run();
}

}  // namespace lockstep::workshop
