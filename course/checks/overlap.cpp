// Chapter 7: overlap and buckets.
#include <algorithm>
#include <fstream>

#include "course/workshop/attempt.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace {

// --- overlap.1

struct Caps {
  double first = 1 << 20, others = 25 << 20;
};

Row elements_of(const Row& widths) {
  Row elements;
  for (size_t i = 1; i < widths.size(); ++i) {
    elements.push_back(widths[i - 1] * widths[i]);
    elements.push_back(widths[i]);
  }
  return elements;
}

Rows packed(const Row& elements, const Caps& caps) {
  Rows buckets(1);
  double bytes = 0;
  for (size_t i = elements.size(); i-- > 0;) {
    buckets.back().push_back(static_cast<double>(i));
    bytes += 4 * elements[i];
    if (bytes < (buckets.size() == 1 ? caps.first : caps.others)) continue;
    buckets.emplace_back();
    bytes = 0;
  }
  if (buckets.back().empty()) buckets.pop_back();
  return buckets;
}

std::string in_braces(const Rows& buckets) {
  std::string text;
  for (const auto& bucket : buckets) text += format("{}{{{}}}", text.empty() ? "" : " ", shown(bucket));
  return text.empty() ? "none" : text;
}

void check_buckets(const std::string& whose, const Rows& is, const Row& elements, const Caps& caps) {
  const auto wanted = packed(elements, caps);
  expect(is == wanted, format("{} are {}, but DDP makes {}", whose, in_braces(is), in_braces(wanted)),
         "go from the last parameter to the first; count bytes; close a bucket once it reaches its cap, and "
         "start the next one empty",
         {{is.size() == elements.size(), "each gradient has its own all-reduce",
           "avoid many small messages: each has a latency"}});
}

// a net of some MiB whose first bucket has just its cap, and one that fills a bucket of 25
CHECK_OF("overlap.1", attempt) {
  const Row elements = {3, 300, 300, 9};
  const Caps caps = {.first = 40, .others = 1210};
  for (const Row& widths : {Row{16, 1024, 1024, 512, 255, 1024}, Row{8, 2000, 2048, 2048, 2048, 900, 4}}) {
    const auto run = attempt.run({.world = 2, .args = as_words(widths)});
    for (const auto& rank : run.ranks) {
      check_buckets("the buckets", rank.rows("bucket"), elements_of(widths), {});
      check_buckets("DDP's own buckets", rank.rows("DDP's bucket"), elements_of(widths), {});
      check_buckets(format("with a first cap of {} bytes and a cap of {}, the buckets of elements {{{}}}",
                           caps.first, caps.others, shown(elements)),
                    rank.rows("small bucket"), elements, caps);
    }
  }
}

// --- overlap.2: what a trace says of one step of rank 0; rank r is 2 r ms later, and its backward 6 r

struct TracedStep {
  double backward_end;
  std::vector<std::pair<double, double>> buckets;
};

// by looking at each quarter of a millisecond: all times here are whole ones
void check_cost(const RankRun& rank, TracedStep step) {
  constexpr double kSlice = 0.25;
  step.backward_end += 6 * rank.rank();
  double exchange = 0, exposed = 0;
  for (double at = kSlice / 2; at < 1000; at += kSlice) {
    const auto holds = [&](const auto& span) {
      return span.first + 2 * rank.rank() <= at && at < span.second + 2 * rank.rank();
    };
    if (!std::any_of(step.buckets.begin(), step.buckets.end(), holds)) continue;
    exchange += kSlice;
    if (at >= step.backward_end) exposed += kSlice;
  }
  rank.expect_number("exchange", exchange,
                     "count the time in which any bucket is in transit: once if two are, and none in a gap");
  rank.expect_number("exposed", exposed, "which part of the exchange comes after the end of backward?");
}

CHECK_OF("overlap.2", attempt) {
  const std::vector<TracedStep> steps = {
      {100, {{20, 60}, {50, 90}, {95, 130}}},              // two at once, a gap, one that is exposed
      {200, {{10, 40}, {50, 80}, {90, 150}}},              // all of it hides
      {50, {{30, 120}, {40, 70}, {60, 140}, {150, 160}}},  // one inside another, and most of it is exposed
      {80, {}}};
  for (const auto& step : steps) {
    Row args = {step.backward_end};
    for (const auto& [begin, end] : step.buckets) args.insert(args.end(), {begin, end});
    const auto run =
        attempt.run({.world = 2, .label = "2 ranks with " + shown(args), .args = as_words(args)});
    for (const auto& rank : run.ranks) check_cost(rank, step);
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

CHECK_OF("overlap.3", attempt) {
  attempt.lockstep({"train", attempt.path(), "--trace", "--log", "error", "--set", "run.name=trial", "--set",
                    "run.dir=" + attempt.folder() + "/runs"},
                   {.world = 2});
  // DDP knows the order of gradients, and makes its buckets, after the first step
  const auto bytes = all_reduces(attempt.folder() + "/runs/trial/trace.json", 3);
  constexpr double kSmall = 2048, kWithConv2 = 1605632 + 73728;
  expect(!bytes.empty(), "there was no all-reduce", "does it still train four steps on two ranks?");
  expect(bytes.size() == 3 && bytes.front() < kWithConv2 && bytes.back() <= kSmall,
         format("{} all-reduce{} per step, of {} bytes", bytes.size(), bytes.size() == 1 ? "" : "s",
                base::join(as_words(bytes), ", ")),
         "make three: which bucket closes too early?",
         {{bytes.size() == 1, "all gradients are in one bucket, which waits for the last one",
           "lower the cap: it is in MiB, and all gradients together have 1.6"},
          {bytes.front() >= kWithConv2, "the first bucket waits for the convolutions",
           "compute its size with fc1.weight in it, and compare it with the cap"},
          {bytes.size() == 3, format("the last one has {:.0f} bytes, but 2048 are allowed", bytes.back()),
           "after which gradient must the bucket before it close?"}});
}

}  // namespace
}  // namespace lockstep::workshop
