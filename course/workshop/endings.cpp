// How the ranks of a learner's program ended, in a learner's words.
#include "course/workshop/judge.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <regex>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
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
  return ending.error && std::ranges::find(kOfOthers, ending.error->code) != std::end(kOfOthers);
}

// as lockstep says it, or who knows nothing of lockstep: C++ and libtorch
bool wanted_memory(const Ending& ending) {
  constexpr const char* kWords[] = {"std::bad_alloc", "can't allocate memory"};
  return !ending.is_well() && ((ending.error && ending.error->code == Code::no_memory) ||
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
    const auto error = rank.ending().error.value_or(Fault{});
    const auto apart = different_calls(error);
    if (const auto words = apart.empty() ? plain_words(rank.rank(), error) : apart; !words.empty())
      throw NotYet(
          words,
          "every rank calls each collective, in the same order and with the same sizes: which way does each "
          "take?\n(all that it said: " +
              log.string() + ")");
    if (printed.empty())
      throw NotYet(format("rank {} left with status {}, and said nothing", rank.rank(), rank.ending().status),
                   "where does it leave?");
    throw LeftWithError(rank.rank(), tail(printed), error);
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

// Where in gloo a connection broke: "[/gloo/pair.cc:547] Connection closed by peer [127.0.0.1]:44171".
std::string without_gloos_places(const std::string& text) {
  static const std::regex place(R"(\[/[^\]]*\] | \[[\d.:a-f]+\]:\d+)");
  return std::regex_replace(text, place, "");
}

// "rank 1 did not come, it is at collective 3; rank 2 has died (its process is gone)"
std::string states(const Fault& error) {
  std::vector<std::string> words;
  for (const auto& seen : error.seen) {
    if (!seen.state.empty())
      words.push_back(format("rank {} {}", seen.rank, without_gloos_places(seen.state)));
  }
  if (words.empty())
    return error.seen.empty() ? "nobody is seen at fault" : "every rank came, and none has an answer";
  return base::join(words, "; ");
}

}  // namespace

LeftWithError::LeftWithError(int rank, std::string said, Fault error)
    : NotYet(format("rank {} left with an error:\n{}", rank, said)),
      said_(std::move(said)),
      error_(std::move(error)) {}

std::string rank_log(const std::string& folder, int rank) {
  return folder + format("/rank-{}.log", rank);
}

std::string plain_words(int rank, const Fault& error) {
  const auto& met = error.met_in;
  if (met.number == 0) return "";
  const auto time = met.waited > 0 ? format("{} s ", met.waited) : "";
  return format("rank {} waited {}in {} (collective {}), and in vain: {}", rank, time, met.call, met.number,
                states(error));
}

std::string different_calls(const Fault& error) {
  if (error.code != Code::calls_differ) return "";
  std::map<std::string, std::vector<int>> ranks;  // in each call
  for (const auto& seen : error.seen) ranks[seen.call].push_back(seen.rank);
  if (ranks.size() < 2) return "";
  std::vector<std::string> words;
  for (const auto& [call, those] : ranks) words.push_back(list(those) + " in " + call);
  const auto count = ranks.size() == 2 ? std::string("two") : std::to_string(ranks.size());
  return format("the ranks are in {} different calls: {}", count, base::join(words, ", "));
}

void require_good_end(const Run& run, const ProgramLimits& limits, const std::string& folder) {
  Diagnosis(run, limits, folder).run();
}

}  // namespace lockstep::workshop
