// Chapter 2: one process, many devices.
#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "course/workshop/judge.h"
#include "lockstep/base/format.h"

namespace lockstep::workshop {
namespace {

using Row = std::vector<double>;

struct Case {
  int samples;
  int devices;
};

std::string named(const Case& one) {
  return format("{} sample{} on {} device{}", one.samples, one.samples == 1 ? "" : "s", one.devices,
                one.devices == 1 ? "" : "s");
}

// as at::chunk cuts
std::vector<int> parts_of(const Case& one) {
  std::vector<int> parts;
  for (int left = one.samples; left > 0; left -= parts.back())
    parts.push_back(std::min((one.samples + one.devices - 1) / one.devices, left));
  return parts;
}

// --- devices.1

constexpr std::array<Case, 6> kCuts = {{{8, 2}, {7, 3}, {8, 4}, {5, 4}, {3, 4}, {1, 1}}};

void look_at_sizes(const Case& one, const Row& sizes) {
  const auto parts = parts_of(one);
  const Row wanted(parts.begin(), parts.end());
  if (sizes == wanted) return;
  const double sum = std::accumulate(sizes.begin(), sizes.end(), 0.0);
  const auto what = format("{}: the parts are {}, and chunk makes {}", named(one),
                           sizes.empty() ? "none" : shown(sizes), shown(wanted));
  if (one.devices > 1 && sizes == Row{sum} && sum == one.samples)
    throw NotYet(format("{}: device 0 gets all {} samples", what, one.samples),
                 "how many does each get when they share the work?");
  if (sum < one.samples)
    throw NotYet(format("{}: samples that never see a device: {}", what, shown(one.samples - sum)),
                 "a division of whole numbers rounds down");
  if (sum > one.samples)
    throw NotYet(format("{}: that is {} samples", what, shown(sum)), "the last part is what is left");
  if (std::count(sizes.begin(), sizes.end(), 0.0) > 0)
    throw NotYet(what + ": there is a part of 0 samples",
                 "a device without work is not in the list: a mean over no samples is not a number");
  if (sizes.size() == wanted.size() && sizes.back() > sizes.front())
    throw NotYet(what + ": what is left over goes to the last device",
                 "then everybody waits for the last device; round up, and it gets less");
  throw NotYet(what + ": these are as equal as can be, or cut in another way",
               "the first devices get as many as samples / devices rounded up");
}

// sample by sample: 0, 7, 4, 1, 8, ...
Row samples_outputs(int begin, int samples) {
  Row outputs;
  for (int i = begin; i < begin + samples; ++i) outputs.push_back(7 * i % 10);
  return outputs;
}

// the parts' outputs in the order in which main() has the devices done
std::vector<Row> as_done(const Case& one) {
  std::vector<Row> done;
  int begin = 0;
  for (const int samples : parts_of(one)) {
    done.insert(done.begin() + std::ssize(done) / 2, samples_outputs(begin, samples));
    begin += samples;
  }
  return done;
}

template <class Iterator>
Row joined(Iterator part, Iterator end) {
  Row outputs;
  for (; part != end; ++part) outputs.insert(outputs.end(), part->begin(), part->end());
  return outputs;
}

void look_at_outputs(const Case& one, const Row& outputs) {
  const auto wanted = samples_outputs(0, one.samples);
  if (outputs == wanted) return;
  const auto what = format("{}: the gathered outputs are {}, and the samples' order is {}", named(one),
                           shown(outputs), shown(wanted));
  if (outputs.size() < wanted.size())
    throw NotYet(what + ": some are missing", "gather puts the outputs of all devices together");
  constexpr const char* kPlace =
      "each would be compared with another sample's target; output.device says where it belongs";
  const auto done = as_done(one);
  if (outputs == joined(done.begin(), done.end()))
    throw NotYet(what + ": they stand in the order in which the devices were done", kPlace);
  if (outputs == joined(done.rbegin(), done.rend()))
    throw NotYet(what + ": that is the order in which the devices were done, turned round", kPlace);
  if (std::is_sorted(outputs.begin(), outputs.end()))
    throw NotYet(what + ": they stand in order of size", kPlace);
  if (std::is_permutation(outputs.begin(), outputs.end(), wanted.begin(), wanted.end()))
    throw NotYet(what + ": they stand in an order other than the devices' order", kPlace);
  throw NotYet(what);
}

// parts of none, one after the other, go on for ever
Run run_to_its_end(Attempt& attempt) {
  try {
    return attempt.run({.world = 1});
  } catch (const Endless& endless) {
    throw NotYet(endless.what(),
                 "does a loop come to its end? With more devices than samples, samples / devices is 0");
  }
}

LOCKSTEP_JUDGE("devices.1", attempt) {
  const auto run = run_to_its_end(attempt);
  const auto& rank = run.ranks.front();
  const auto sizes = rank.rows("sizes"), outputs = rank.rows("outputs");
  for (size_t i = 0; i < std::min(kCuts.size(), sizes.size()); ++i) look_at_sizes(kCuts[i], sizes[i]);
  for (size_t i = 0; i < std::min(kCuts.size(), outputs.size()); ++i) look_at_outputs(kCuts[i], outputs[i]);
  if (sizes.size() != kCuts.size() || outputs.size() != kCuts.size())
    throw NotYet(format("{} of {} batches were shown", std::min(sizes.size(), outputs.size()), kCuts.size()),
                 "main() shows them all: leave it as it is");
}

// --- devices.2

constexpr std::array<Case, 4> kBatches = {{{8, 2}, {5, 4}, {7, 3}, {3, 1}}};

// how much of the whole loss each part's mean is, and what is said of it
struct Weighing {
  double (*weight)(double samples, double all, double parts);
  const char* what;
  const char* think;
};

constexpr std::array<Weighing, 4> kWeighings = {{
    {[](double samples, double all, double) { return samples / all; }, "", ""},
    {[](double, double, double parts) { return 1 / parts; }, "that is the mean of the devices' means",
     "a sample on a device with few of them then counts more than the others"},
    {[](double, double, double) { return 1.0; }, "that is the sum of the devices' means",
     "with more devices the loss would be larger, for the same batch"},
    {[](double samples, double, double) { return samples; }, "that is the sum over all samples",
     "what makes a mean of a sum?"},
}};

constexpr double kDoubleRounding = 1e-12;

struct Result {
  double loss = 0, gradient = 0;
};

bool are_near(const Result& is, const Result& wanted, double tolerance = 1e-6) {
  return near(is.loss, wanted.loss, tolerance) && near(is.gradient, wanted.gradient, tolerance);
}

// the mean of (1.5 x - x x)^2 over the samples from `begin`
Result part_of_batch(int begin, int samples) {
  Result mean;
  for (int i = begin; i < begin + samples; ++i) {
    const double x = i + 1, error = 1.5 * x - x * x;
    mean.loss += error * error / samples;
    mean.gradient += 2 * error * x / samples;
  }
  return mean;
}

Result weighed(const Case& one, const Weighing& weighing) {
  const auto parts = parts_of(one);
  Result whole;
  int begin = 0;
  for (const int samples : parts) {
    const auto mean = part_of_batch(begin, samples);
    const double weight = weighing.weight(samples, one.samples, static_cast<double>(parts.size()));
    whole.loss += weight * mean.loss;
    whole.gradient += weight * mean.gradient;
    begin += samples;
  }
  return whole;
}

void look_at_loss(const Case& one, const Result& is) {
  const auto wanted = weighed(one, kWeighings.front());
  if (are_near(is, wanted, kDoubleRounding)) return;
  if (are_near(is, wanted))
    throw NotYet(format("{}: the loss is right to 7 digits only: somewhere it was a float32", named(one)),
                 "the losses are doubles: .to(at::kFloat) and tensors that begin as floats cut them");
  if (near(is.loss, wanted.loss))
    throw NotYet(format("{}: the loss is right, {}, but no way back leads through it: the gradient is {}, "
                        "and it is {} for the whole batch",
                        named(one), shown(is.loss), shown(is.gradient), shown(wanted.gradient)),
                 ".item() gives a plain number, of which autograd knows nothing");
  const auto what = format("{}: the loss is {}, and the mean over the whole batch is {}", named(one),
                           shown(is.loss), shown(wanted.loss));
  if (are_near(is, part_of_batch(0, parts_of(one).front())))
    throw NotYet(what + ": that is the loss of device 0's part", "the other devices' losses are missing");
  for (const auto& weighing : kWeighings) {
    if (near(is.loss, weighed(one, weighing).loss)) throw NotYet(what + ": " + weighing.what, weighing.think);
  }
  throw NotYet(what, "each part counts for as many samples as it has");
}

double only(const Row& row, const Case& one, const char* name) {
  if (row.size() == 1) return row.front();
  throw NotYet(format("{}: {} numbers were shown as `{}`, and one is wanted", named(one), row.size(), name),
               "main() shows them: leave it as it is");
}

LOCKSTEP_JUDGE("devices.2", attempt) {
  const auto run = attempt.run({.world = 1});
  const auto& rank = run.ranks.front();
  const auto losses = rank.rows("loss"), gradients = rank.rows("gradient");
  if (losses.size() != kBatches.size() || gradients.size() != kBatches.size())
    throw NotYet(format("{} of {} batches were shown", losses.size(), kBatches.size()),
                 "main() shows them all: leave it as it is");
  for (size_t i = 0; i < kBatches.size(); ++i)
    look_at_loss(kBatches[i],
                 {only(losses[i], kBatches[i], "loss"), only(gradients[i], kBatches[i], "gradient")});
}

// --- devices.3

struct Line {
  double weight = 0, bias = 0;
};

// what a step may do, and what is said of it
struct Way {
  bool refreshes;
  double (*share)(size_t part, double samples, double all, double parts);
  const char* what;
  const char* think;
};

double by_samples(size_t, double samples, double all, double) {
  return samples / all;
}

constexpr std::array<Way, 6> kWays = {{
    {true, by_samples, "", ""},
    {true, [](size_t, double, double, double) { return 0.0; },
     "these are still the parameters of the beginning", "no gradient has come to the first model"},
    {false, by_samples, "the replicas compute with the parameters of the beginning: they are not refreshed",
     "the optimiser moves the first model alone"},
    {true, [](size_t part, double, double, double) { return part == 0 ? 1.0 : 0.0; },
     "it has learned from device 0's samples alone", "the other replicas' gradients are missing"},
    {true, [](size_t, double, double, double) { return 1.0; },
     "the gradients are summed, and each part counts in full",
     "with more devices the steps become longer, for the same batch"},
    {true, [](size_t, double, double, double parts) { return 1 / parts; },
     "all parts count the same, whatever their size",
     "a part of 1 sample counts as much as one of 2: each for its share of the batch"},
}};

Line gradient_of_part(const Line& line, int begin, int samples) {
  Line gradient;
  for (int i = begin; i < begin + samples; ++i) {
    const double x = i + 1, error = line.weight * x + line.bias - x * x;
    gradient.weight += 2 * error * x / samples;
    gradient.bias += 2 * error / samples;
  }
  return gradient;
}

Line after_step(const Line& first, const Case& one, const Way& way) {
  const auto parts = parts_of(one);
  const Line used = way.refreshes ? first : Line{};
  Line moved = first;
  int begin = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto gradient = gradient_of_part(used, begin, parts[i]);
    const double share = way.share(i, parts[i], one.samples, static_cast<double>(parts.size()));
    moved.weight -= 0.01 * share * gradient.weight;
    moved.bias -= 0.01 * share * gradient.bias;
    begin += parts[i];
  }
  return moved;
}

std::vector<Row> trained_lines(const Case& one, const Way& way, size_t steps) {
  std::vector<Row> rows;
  Line line;
  for (size_t i = 0; i < steps; ++i) {
    line = after_step(line, one, way);
    rows.push_back({line.weight, line.bias});
  }
  return rows;
}

bool are_near(const Row& is, const Row& wanted) {
  return is.size() == wanted.size() && near(is[0], wanted[0]) && near(is[1], wanted[1]);
}

constexpr size_t kLineSteps = 3;

void look_at_lines(const Case& one, const std::vector<Row>& lines) {
  const auto same = [&](const std::vector<Row>& wanted) {
    return std::equal(lines.begin(), lines.end(), wanted.begin(),
                      [](const Row& is, const Row& want) { return are_near(is, want); });
  };
  const auto wanted = trained_lines(one, kWays.front(), kLineSteps);
  if (same(wanted)) return;
  size_t step = 0;
  while (are_near(lines[step], wanted[step])) ++step;
  const auto what = format("{}: after step {} weight and bias are {}, and one device would have {}",
                           named(one), step + 1, shown(lines[step]), shown(wanted[step]));
  for (const auto& way : kWays) {
    if (same(trained_lines(one, way, kLineSteps))) throw NotYet(format("{}: {}", what, way.what), way.think);
  }
  throw NotYet(what, step == 0
                         ? "step 1 begins with equal parameters: look at reduce() first"
                         : "step 1 is right, and so is reduce(): do the replicas compute with both of the "
                           "first model's parameters?");
}

void look_at_memory(const RankRun& rank) {
  const double shared = rank.number("parameters in the first model's memory");
  if (shared == 0) return;
  throw NotYet(format("{} of the replicas' parameters are in the first model's memory: they are no copies",
                      shown(shared)),
               "a replica is on another device, with memory of its own: copy_() brings the numbers there");
}

LOCKSTEP_JUDGE("devices.3", attempt) {
  const auto run = attempt.run({.world = 1});
  const auto lines = run.ranks.front().rows("line");
  look_at_memory(run.ranks.front());
  if (lines.size() != 2 * kLineSteps)
    throw NotYet(format("{} steps were shown, and there are {}", lines.size(), 2 * kLineSteps),
                 "main() shows them all: leave it as it is");
  look_at_lines({5, 2}, {lines.begin(), lines.begin() + kLineSteps});
  look_at_lines({5, 3}, {lines.begin() + kLineSteps, lines.end()});
}

}  // namespace
}  // namespace lockstep::workshop
