// Chapter 7: overlap and buckets.
#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

#include "course/workshop/judge.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

struct Caps {
  double first = 1 << 20, others = 25 << 20;
};

constexpr Caps kDdpsCaps;

double from_nothing(double, double) {
  return 0;
}

Caps as_they_are(const Caps& caps) {
  return caps;
}

// How somebody may deal gradients out.
struct Packing {
  const char* what;
  const char* think;
  bool reverse = true, before = false, when_reached = true;
  double (*next_bytes)(double bytes, double cap) = from_nothing;  // what a new bucket begins to count with
  double element = 4;
  Caps (*caps)(const Caps& caps) = as_they_are;  // those that are taken for the caps
};

constexpr Packing kRightPacking = {.what = "", .think = ""};

// in the order in which they are looked for
constexpr std::array<Packing, 9> kWrongPackings = {{
    {.what = "these are DDP's own caps, whatever they are here",
     .think = "first_cap and cap are the function's to be told",
     .caps = [](const Caps&) { return kDdpsCaps; }},
    {.what = "the gradients go in the model's order",
     .think = "backward begins with the loss: which layer's gradients does it have first?",
     .reverse = false},
    {.what = "the caps count bytes, and these are dealt out as if an element were a byte",
     .think = "how many bytes has a float?",
     .element = 1},
    {.what = "the first bucket has the others' cap",
     .think = "what does the smaller first one bring?",
     .caps =
         [](const Caps& caps) {
           return Caps{caps.others, caps.others};
         }},
    {.what = "the others have the first bucket's cap",
     .think = "which cap has the second bucket?",
     .caps =
         [](const Caps& caps) {
           return Caps{caps.first, caps.first};
         }},
    {.what = "a bucket is closed before it has reached its cap",
     .think =
         "DDP looks after it has put a gradient in, not before: a bucket may well be larger than its cap",
     .before = true},
    {.what = "a new bucket counts on from the one before, and none starts to count again",
     .think = "what has to happen to the bytes when a bucket is closed?",
     .next_bytes = [](double bytes, double) { return bytes; }},
    {.what = "a new bucket carries over what the last one had too much",
     .think = "a bucket may be larger than its cap, and the next one begins empty",
     .next_bytes = [](double bytes, double cap) { return bytes - cap; }},
    {.what = "a bucket that has just its cap is left open",
     .think = "rule 3 says `reached`: with how many bytes is that so?",
     .when_reached = false},
}};

Row elements_of(const std::vector<int>& widths) {
  Row elements;
  for (size_t i = 1; i < widths.size(); ++i) {
    elements.push_back(double{1} * widths[i - 1] * widths[i]);
    elements.push_back(widths[i]);
  }
  return elements;
}

Rows packed(const Row& elements, const Caps& told, const Packing& way) {
  const auto caps = way.caps(told);
  Rows buckets(1);
  double bytes = 0;
  const auto close = [&](double cap) {
    buckets.emplace_back();
    bytes = way.next_bytes(bytes, cap);
  };
  for (size_t turn = 0; turn < elements.size(); ++turn) {
    const auto i = way.reverse ? elements.size() - 1 - turn : turn;
    const double more = way.element * elements[i];
    const double cap = buckets.size() == 1 ? caps.first : caps.others;
    if (way.before && bytes > 0 && bytes + more > cap) close(cap);
    buckets.back().push_back(static_cast<double>(i));
    bytes += more;
    const bool is_full = way.when_reached ? bytes >= cap : bytes > cap;
    if (!way.before && is_full) close(cap);
  }
  if (buckets.back().empty()) buckets.pop_back();
  return buckets;
}

std::string in_braces(const Rows& buckets) {
  std::vector<std::string> words;
  for (const auto& bucket : buckets) words.push_back("{" + shown(bucket) + "}");
  return words.empty() ? "none" : base::join(words, " ");
}

void require_in_one_bucket(const Rows& buckets, size_t count) {
  std::vector<int> times(count);
  for (const auto& bucket : buckets) {
    for (const double i : bucket) {
      if (!(i >= 0 && i < static_cast<double>(count)))
        throw NotYet(format("there is no parameter {}: they are numbered from 0 to {}", shown(i), count - 1));
      ++times[static_cast<size_t>(i)];
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (times[i] == 0)
      throw NotYet(format("parameter {} is in no bucket: {}", i, in_braces(buckets)),
                   "what becomes of a bucket that is not full when backward ends?");
    if (times[i] > 1) throw NotYet(format("parameter {} is in {} buckets", i, times[i]));
  }
  if (std::any_of(buckets.begin(), buckets.end(), [](const Row& bucket) { return bucket.empty(); }))
    throw NotYet(format("there is an empty bucket: {}", in_braces(buckets)),
                 "the next gradient opens a new one: what if there is no next?");
}

[[noreturn]] void explain(const std::string& whose, const Rows& buckets, const Row& elements,
                          const Caps& caps) {
  Row alone(elements.size(), 1), lengths;
  for (const auto& bucket : buckets) lengths.push_back(static_cast<double>(bucket.size()));
  const auto what = format("{} are {}, and DDP makes {}", whose, in_braces(buckets),
                           in_braces(packed(elements, caps, kRightPacking)));
  if (lengths == alone)
    throw NotYet(what + ": each gradient travels alone", "many small messages, a latency each");
  for (const auto& way : kWrongPackings) {
    if (buckets == packed(elements, caps, way)) throw NotYet(what + ": " + way.what, way.think);
  }
  throw NotYet(what);
}

void judge_packing(const RankRun& rank, const std::vector<int>& widths) {
  const auto elements = elements_of(widths);
  const auto wanted = packed(elements, kDdpsCaps, kRightPacking);
  const auto buckets = rank.rows("bucket");
  require_in_one_bucket(buckets, elements.size());
  if (buckets != wanted) explain("the buckets", buckets, elements, kDdpsCaps);
  if (rank.rows("DDP's bucket") != wanted)
    throw NotYet("DDP itself made other buckets", "is the code below pack() as it was?");
}

// what the exercise has
void judge_small_packing(const RankRun& rank) {
  const Row elements = {3, 300, 300, 9};
  const Caps caps = {.first = 40, .others = 1210};
  const auto buckets = rank.rows("small bucket");
  require_in_one_bucket(buckets, elements.size());
  if (buckets != packed(elements, caps, kRightPacking))
    explain(format("with a first cap of {} bytes and a cap of {}, the buckets of elements {{{}}}", caps.first,
                   caps.others, shown(elements)),
            buckets, elements, caps);
}

// a net of some MiB whose first bucket has just its cap, and one that fills a bucket of 25
LOCKSTEP_JUDGE("overlap.1", attempt) {
  const std::vector<std::vector<int>> nets = {{16, 1024, 1024, 512, 255, 1024},
                                              {8, 2000, 2048, 2048, 2048, 900, 4}};
  std::vector<RankRun> last;
  for (const auto& widths : nets) {
    std::vector<std::string> args;
    for (const int width : widths) args.push_back(std::to_string(width));
    const auto run = attempt.run({.world = 2, .args = args});
    for (const auto& rank : run.ranks) judge_packing(rank, widths);
    last = run.ranks;
  }
  for (const auto& rank : last) judge_small_packing(rank);
}

// What a trace says of one step of rank 0; rank r is 2 r ms later, and its backward 6 r.
struct TracedStep {
  double backward_end;
  std::vector<std::pair<double, double>> buckets;
};

struct Cost {
  double exchange, shows;
  bool operator==(const Cost& other) const {
    return near(exchange, other.exchange) && near(shows, other.shows);
  }
};

TracedStep step_of(const TracedStep& step, int rank) {
  TracedStep own = {step.backward_end + 6 * rank, step.buckets};
  for (auto& [begin, end] : own.buckets) begin += 2 * rank, end += 2 * rank;
  return own;
}

// by looking at each quarter of a millisecond: all times here are whole ones
Cost cost_of(const TracedStep& step) {
  constexpr double kSlice = 0.25;
  Cost cost = {0, 0};
  for (double at = kSlice / 2; at < 1000; at += kSlice) {
    const bool at_work = std::any_of(step.buckets.begin(), step.buckets.end(),
                                     [&](const auto& span) { return span.first <= at && at < span.second; });
    if (at_work) cost.exchange += kSlice;
    if (at_work && at >= step.backward_end) cost.shows += kSlice;
  }
  return cost;
}

double last_end(const TracedStep& step) {
  double last = 0;
  for (const auto& span : step.buckets) last = std::max(last, span.second);
  return last;
}

Cost counted_twice(const TracedStep& step) {
  Cost cost = {0, 0};
  for (const auto& span : step.buckets) {
    const auto part = cost_of({step.backward_end, {span}});
    cost = {cost.exchange + part.exchange, cost.shows + part.shows};
  }
  return cost;
}

bool shows_whole_buckets(const TracedStep& step, double shows) {
  TracedStep late = {0, {}};
  for (const auto& span : step.buckets) {
    if (span.second > step.backward_end) late.buckets.push_back(span);
  }
  // what an earlier bucket shared with a late one may be left out or not
  const double most = cost_of(late).shows;
  double until = 0, least = 0;
  for (const auto& [begin, end] : step.buckets) {
    if (end > step.backward_end) least += std::max(0.0, end - std::max(begin, until));
    until = std::max(until, end);
  }
  return !late.buckets.empty() && shows <= most + 1e-6 && shows >= least - 1e-6;
}

void judge_exchange(const std::string& who, const TracedStep& step, double is) {
  const double wanted = cost_of(step).exchange;
  if (near(is, wanted)) return;
  const auto what = who + format("the exchange takes {} ms, and it is {}", shown(is), shown(wanted));
  if (near(is, counted_twice(step).exchange))
    throw NotYet(what + ": it counts twice where two buckets are on their way at once",
                 "how far had you counted when the next one began?");
  if (!step.buckets.empty() && near(is, last_end(step) - step.buckets.front().first))
    throw NotYet(what + ": it counts the gaps between buckets, too", "what travels in a gap?");
  throw NotYet(what);
}

void judge_shows(const std::string& who, const TracedStep& step, double is) {
  const auto wanted = cost_of(step);
  if (near(is, wanted.shows)) return;
  const auto what = who + format("{} ms show, and it is {}", shown(is), shown(wanted.shows));
  if (is < 0)
    throw NotYet(what + ": less than nothing cannot show",
                 "what if all buckets are through before backward ends?");
  if (near(is, counted_twice(step).shows))
    throw NotYet(what + ": it counts twice where two buckets are on their way at once");
  if (near(is, wanted.exchange))
    throw NotYet(what + ": as if nothing were hidden", "what has backward paid for anyway?");
  if (shows_whole_buckets(step, is))
    throw NotYet(what + ": it counts the whole of a bucket that ends after backward",
                 "which part of it lies behind the end of backward?");
  throw NotYet(what);
}

std::vector<std::string> arguments(const TracedStep& step) {
  std::vector<std::string> args = {shown(step.backward_end)};
  for (const auto& [begin, end] : step.buckets) {
    args.push_back(shown(begin));
    args.push_back(shown(end));
  }
  return args;
}

Run run_without_buckets(Attempt& attempt, const std::vector<std::string>& args) {
  try {
    return attempt.run({.world = 2, .args = args});
  } catch (const NotYet& fall) {
    throw NotYet(format("it falls over a step without buckets, which costs 0 ms: {}", fall.what()),
                 "who trains alone exchanges nothing: is there a first bucket to look at?");
  }
}

LOCKSTEP_JUDGE("overlap.2", attempt) {
  const std::vector<TracedStep> steps = {
      {100, {{20, 60}, {50, 90}, {95, 130}}},              // two at once, a gap, one that shows
      {200, {{10, 40}, {50, 80}, {90, 150}}},              // all of it hides
      {50, {{30, 120}, {40, 70}, {60, 140}, {150, 160}}},  // one inside another, and most of it shows
      {80, {}}};
  for (const auto& step : steps) {
    const auto run = step.buckets.empty() ? run_without_buckets(attempt, arguments(step))
                                          : attempt.run({.world = 2, .args = arguments(step)});
    for (const auto& rank : run.ranks) {
      const auto who = format("with {} on its command line, rank {} says: ", base::join(arguments(step), " "),
                              rank.rank());
      judge_exchange(who, step_of(step, rank.rank()), rank.number("exchange"));
      judge_shows(who, step_of(step, rank.rank()), rank.number("shows"));
    }
  }
}

// the number behind "name": on a line of trace.json
double member(const std::string& line, const std::string& name) {
  const auto at = line.find("\"" + name + "\":");
  return at == std::string::npos ? -1 : std::stod(line.substr(at + name.size() + 3));
}

// the bytes of the all-reduces of rank 0 in one step, in order
Row all_reduces(const std::string& trace, int step) {
  std::ifstream file(trace);
  std::vector<std::pair<double, double>> found;
  for (std::string line; std::getline(file, line);) {
    const bool is = line.find("\"name\":\"all-reduce\"") != std::string::npos;
    if (is && member(line, "pid") == 0 && member(line, "step") == step)
      found.emplace_back(member(line, "ts"), member(line, "bytes"));
  }
  std::sort(found.begin(), found.end());
  Row bytes;
  for (const auto& span : found) bytes.push_back(span.second);
  return bytes;
}

std::string whole_numbers(const Row& numbers) {
  std::vector<std::string> words;
  for (const double number : numbers) words.push_back(format("{:.0f}", number));
  return base::join(words, ", ");
}

void judge_buckets(const Row& bytes) {
  constexpr size_t kWanted = 3, kParameters = 8;
  constexpr double kSmall = 2048, kWithConv2 = 1605632 + 73728;
  if (bytes.empty()) throw NotYet("no all-reduce was seen", "does it still train four steps on two ranks?");
  const auto what = format("{} all-reduce{} a step, of {} bytes", bytes.size(), bytes.size() == 1 ? "" : "s",
                           whole_numbers(bytes));
  if (bytes.size() == 1)
    throw NotYet(what + ": all gradients travel together, when the last one is there",
                 "the cap is in MiB, and all gradients together have 1.6");
  if (bytes.size() == kParameters)
    throw NotYet(what + ": one for each parameter, and a latency for each", "which could share one?");
  if (bytes.front() >= kWithConv2)
    throw NotYet(what + ": the first bucket waits for the convolutions",
                 "what does it have when fc1.weight is in, and is that more than the cap?");
  if (bytes.back() > kSmall)
    throw NotYet(
        what + format(": the last one has {} bytes, and 2048 are allowed", whole_numbers({bytes.back()})),
        "after which gradient must the bucket before it close?");
  if (bytes.size() != kWanted)
    throw NotYet(what + ": three are wanted", "which bucket closes sooner than it must?");
}

LOCKSTEP_JUDGE("overlap.3", attempt) {
  attempt.lockstep({"train", attempt.path(), "--trace", "--log", "error", "--set", "run.name=trial", "--set",
                    "run.dir=" + attempt.folder() + "/runs"},
                   {.world = 2});
  // DDP knows the order of gradients, and makes its buckets, after the first step
  judge_buckets(all_reduces(attempt.folder() + "/runs/trial/trace.json", 3));
}

}  // namespace
}  // namespace lockstep::workshop
