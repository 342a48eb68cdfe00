// Chapter 7: overlap and buckets.
#include <algorithm>
#include <fstream>

#include "course/workshop/judge.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace {

struct Caps {
  double first = 1 << 20, others = 25 << 20;
};

// How somebody may deal gradients out.
struct Packing {
  bool reverse = true, before = false, when_reached = true;
  enum Next { empty, counts_on, carries_over } next = empty;  // what a new bucket begins to count with
  double element = 4;
};

Row elements_of(const Row& widths) {
  Row elements;
  for (size_t i = 1; i < widths.size(); ++i) {
    elements.push_back(widths[i - 1] * widths[i]);
    elements.push_back(widths[i]);
  }
  return elements;
}

Rows packed(const Row& elements, const Caps& caps, const Packing& way = {}) {
  Rows buckets(1);
  double bytes = 0;
  const auto close = [&](double cap) {
    buckets.emplace_back();
    bytes = way.next == Packing::empty ? 0 : way.next == Packing::counts_on ? bytes : bytes - cap;
  };
  for (size_t turn = 0; turn < elements.size(); ++turn) {
    const auto i = way.reverse ? elements.size() - 1 - turn : turn;
    const double more = way.element * elements[i], cap = buckets.size() == 1 ? caps.first : caps.others;
    if (way.before && bytes > 0 && bytes + more > cap) close(cap);
    buckets.back().push_back(static_cast<double>(i));
    bytes += more;
    if (!way.before && (way.when_reached ? bytes >= cap : bytes > cap)) close(cap);
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
  const auto all = flat(buckets);
  for (size_t i = 0; i < count; ++i) {
    const auto times = std::count(all.begin(), all.end(), static_cast<double>(i));
    expect(times > 0, format("parameter {} is in no bucket: {}", i, in_braces(buckets)), {},
           "what becomes of a bucket that is not full when backward ends?");
    expect(times == 1, format("parameter {} is in {} buckets", i, times));
  }
  expect(all.size() == count,
         format("there are other parameters than 0 to {}: {}", count - 1, in_braces(buckets)));
  expect(std::none_of(buckets.begin(), buckets.end(), [](const Row& bucket) { return bucket.empty(); }),
         format("there is an empty bucket: {}", in_braces(buckets)), {},
         "the next gradient opens a new one: what if there is no next?");
}

void judge_packing(const std::string& whose, const Rows& buckets, const Row& elements, const Caps& caps) {
  require_in_one_bucket(buckets, elements.size());
  const auto is = [&](const Caps& told, const Packing& way) {
    return buckets == packed(elements, told, way);
  };
  const auto wanted = packed(elements, caps);
  expect(
      buckets == wanted, format("{} are {}, and DDP makes {}", whose, in_braces(buckets), in_braces(wanted)),
      {{buckets.size() == elements.size(), "each gradient travels alone",
        "many small messages, a latency each"},
       {is({}, {}), "these are DDP's own caps, whatever they are here",
        "first_cap and cap are the function's to be told"},
       {is(caps, {.reverse = false}), "the gradients go in the model's order",
        "backward begins with the loss: which layer's gradients does it have first?"},
       {is(caps, {.element = 1}),
        "the caps count bytes, and these are dealt out as if an element were a byte",
        "how many bytes has a float?"},
       {is({caps.others, caps.others}, {}), "the first bucket has the others' cap",
        "what does the smaller first one bring?"},
       {is({caps.first, caps.first}, {}), "the others have the first bucket's cap",
        "which cap has the second bucket?"},
       {is(caps, {.before = true}), "a bucket is closed before it has reached its cap",
        "DDP looks after it has put a gradient in, not before: a bucket may well be larger than its cap"},
       {is(caps, {.next = Packing::counts_on}),
        "a new bucket counts on from the one before, and none starts to count again",
        "what has to happen to the bytes when a bucket is closed?"},
       {is(caps, {.next = Packing::carries_over}), "a new bucket carries over what the last one had too much",
        "a bucket may be larger than its cap, and the next one begins empty"},
       {is(caps, {.when_reached = false}), "a bucket that has just its cap is left open",
        "rule 3 says `reached`: with how many bytes is that so?"}});
}

// a net of some MiB whose first bucket has just its cap, and one that fills a bucket of 25
LOCKSTEP_JUDGE("overlap.1", attempt) {
  const Row elements = {3, 300, 300, 9};
  const Caps caps = {.first = 40, .others = 1210};
  Run run;
  for (const Row& widths : {Row{16, 1024, 1024, 512, 255, 1024}, Row{8, 2000, 2048, 2048, 2048, 900, 4}}) {
    run = attempt.run({.world = 2, .args = as_words(widths)});
    for (const auto& rank : run.ranks) {
      judge_packing("the buckets", rank.rows("bucket"), elements_of(widths), {});
      expect(rank.rows("DDP's bucket") == packed(elements_of(widths), {}), "DDP itself made other buckets",
             {}, "is the code below pack() as it was?");
    }
  }
  for (const auto& rank : run.ranks)
    judge_packing(format("with a first cap of {} bytes and a cap of {}, the buckets of elements {{{}}}",
                         caps.first, caps.others, shown(elements)),
                  rank.rows("small bucket"), elements, caps);
}

// --- overlap.2: what a trace says of one step of rank 0; rank r is 2 r ms later, and its backward 6 r

struct TracedStep {
  double backward_end;
  std::vector<std::pair<double, double>> buckets;
};

TracedStep step_of(const TracedStep& step, int rank) {
  TracedStep own = {step.backward_end + 6 * rank, step.buckets};
  for (auto& [begin, end] : own.buckets) begin += 2 * rank, end += 2 * rank;
  return own;
}

struct Cost {
  double exchange = 0, shows = 0;
};

// by looking at each quarter of a millisecond: all times here are whole ones
Cost cost_of(const TracedStep& step) {
  constexpr double kSlice = 0.25;
  Cost cost;
  for (double at = kSlice / 2; at < 1000; at += kSlice) {
    const bool at_work = std::any_of(step.buckets.begin(), step.buckets.end(),
                                     [&](const auto& span) { return span.first <= at && at < span.second; });
    if (at_work) cost.exchange += kSlice;
    if (at_work && at >= step.backward_end) cost.shows += kSlice;
  }
  return cost;
}

Cost counted_twice(const TracedStep& step) {
  Cost cost;
  for (const auto& span : step.buckets) {
    const auto part = cost_of({step.backward_end, {span}});
    cost.exchange += part.exchange;
    cost.shows += part.shows;
  }
  return cost;
}

void judge_cost(const std::string& who, const TracedStep& step, const Cost& is) {
  const auto wanted = cost_of(step), twice = counted_twice(step);
  const double first = step.buckets.empty() ? 0 : step.buckets.front().first;
  double last = 0, late = 0, all_late = 0;  // of buckets that end after backward
  for (const auto& [begin, end] : step.buckets) {
    last = std::max(last, end);
    if (end <= step.backward_end) continue;
    late += end - begin;
    all_late = std::max(all_late, end - begin);
  }
  expect(near(is.exchange, wanted.exchange),
         who + format("the exchange takes {} ms, and it is {}", shown(is.exchange), shown(wanted.exchange)),
         {{near(is.exchange, twice.exchange), "it counts twice where two buckets are on their way at once",
           "how far had you counted when the next one began?"},
          {near(is.exchange, last - first), "it counts the gaps between buckets, too",
           "what travels in a gap?"}});
  expect(
      near(is.shows, wanted.shows),
      who + format("{} ms show, and it is {}", shown(is.shows), shown(wanted.shows)),
      {{is.shows < 0, "less than nothing cannot show",
        "what if all buckets are through before backward ends?"},
       {near(is.shows, twice.shows), "it counts twice where two buckets are on their way at once"},
       {near(is.shows, wanted.exchange), "as if nothing were hidden", "what has backward paid for anyway?"},
       {is.shows > wanted.shows && is.shows >= all_late && is.shows <= late,
        "it counts the whole of a bucket that ends after backward",
        "which part of it lies behind the end of backward?"}});
}

Row arguments(const TracedStep& step) {
  Row args = {step.backward_end};
  for (const auto& [begin, end] : step.buckets) args.insert(args.end(), {begin, end});
  return args;
}

Run run_step(Attempt& attempt, const TracedStep& step) {
  try {
    return attempt.run({.world = 2, .args = as_words(arguments(step))});
  } catch (const NotYet& fall) {
    if (!step.buckets.empty()) throw;
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
    const auto run = run_step(attempt, step);
    for (const auto& rank : run.ranks)
      judge_cost(format("with {} on its command line, rank {} says: ", shown(arguments(step)), rank.rank()),
                 step_of(step, rank.rank()), {rank.number("exchange"), rank.number("shows")});
  }
}

// --- overlap.3

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

LOCKSTEP_JUDGE("overlap.3", attempt) {
  attempt.lockstep({"train", attempt.path(), "--trace", "--log", "error", "--set", "run.name=trial", "--set",
                    "run.dir=" + attempt.folder() + "/runs"},
                   {.world = 2});
  // DDP knows the order of gradients, and makes its buckets, after the first step
  const auto bytes = all_reduces(attempt.folder() + "/runs/trial/trace.json", 3);
  constexpr double kSmall = 2048, kWithConv2 = 1605632 + 73728;
  expect(!bytes.empty(), "no all-reduce was seen", {}, "does it still train four steps on two ranks?");
  expect(bytes.size() == 3 && bytes.front() < kWithConv2 && bytes.back() <= kSmall,
         format("{} all-reduce{} a step, of {} bytes", bytes.size(), bytes.size() == 1 ? "" : "s",
                base::join(as_words(bytes), ", ")),
         {{bytes.size() == 1, "all gradients travel together, when the last one is there",
           "the cap is in MiB, and all gradients together have 1.6"},
          {bytes.size() == 8, "one for each parameter, and a latency for each", "which could share one?"},
          {bytes.front() >= kWithConv2, "the first bucket waits for the convolutions",
           "what does it have when fc1.weight is in, and is that more than the cap?"},
          {bytes.back() > kSmall, format("the last one has {:.0f} bytes, and 2048 are allowed", bytes.back()),
           "after which gradient must the bucket before it close?"},
          {true, "three are wanted", "which bucket closes sooner than it must?"}});
}

}  // namespace
}  // namespace lockstep::workshop
