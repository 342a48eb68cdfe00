#include "course/workshop/judges/messages.h"

#include <array>
#include <regex>
#include <string_view>

#include "lockstep/base/format.h"

namespace lockstep::workshop {
namespace {

struct Deadlock {
  std::string_view headline;
  const char* think;
};

constexpr std::array<Deadlock, 2> kAwaitedOfNobody = {
    {{"that nobody sends", "each receive() needs a send() to it: the rank that is waited for ended without"},
     {"that nobody receives",
      "each send() needs a receive() of it: the rank that is to receive ended without"}}};

constexpr std::array<Deadlock, 2> kOtherErrors = {
    {{"range_check", "a vector has no such place: how many numbers has the one that is received into?"},
     {" bytes, and rank ",
      "what is sent and the place that it comes into have one size: from whom does it come, and what is "
      "it?"}}};

bool waits_for_itself(const std::string& what) {
  static const std::regex form(R"(rank (\d+) waits (for a message from|until) rank \1\b)");
  return std::regex_search(what, form);
}

// what is to be thought of messages that never meet, or do not fit; empty where the error is none of these
std::string think_of_error(const std::string& what) {
  const auto holds = [&](std::string_view words) { return what.find(words) != std::string::npos; };
  for (const auto& row : kOtherErrors)
    if (holds(row.headline)) return row.think;
  if (waits_for_itself(what))
    return "a rank has its own numbers already: it sends itself nothing, and waits for nothing of its own";
  for (const auto& row : kAwaitedOfNobody)
    if (holds(row.headline)) return row.think;
  if (!holds("wait for each other")) return "";
  if (!holds("waits until rank"))
    return "a message has to be sent before it comes: while all receive, nobody sends";
  if (!holds("waits for a message"))
    return "a message waits for its receiver: while all send, nobody receives; and a receive() into an empty "
           "vector takes no message";
  return "a send() and its receive() belong together: follow who waits for whom, round to where it began";
}

}  // namespace

Run run_threads_of(Attempt& attempt, const std::vector<std::string>& args, const std::string& label,
                   const std::string& named) {
  try {
    return attempt.run({.world = 1, .label = label, .args = args});
  } catch (const NotYet& not_yet) {
    constexpr std::string_view kOpening = "rank 0 left with an error:\n";
    const std::string what = not_yet.what();
    if (!what.starts_with(kOpening)) throw;
    throw NotYet(format("{}:\n{}", named, what.substr(kOpening.size())), think_of_error(what));
  }
}

}  // namespace lockstep::workshop
