// Chapter 2: one process, many devices.
#include <algorithm>
#include <numeric>

#include "course/workshop/judge.h"
#include "lockstep/base/format.h"

namespace lockstep::workshop {
namespace {

struct Case {
  int samples, devices;
};

std::string named(const Case& one) {
  return format("{} sample{} on {} device{}", one.samples, one.samples == 1 ? "" : "s", one.devices,
                one.devices == 1 ? "" : "s");
}

// as at::chunk cuts
Row parts_of(const Case& one) {
  Row parts;
  for (double left = one.samples; left > 0; left -= parts.back())
    parts.push_back(std::min<double>((one.samples + one.devices - 1) / one.devices, left));
  return parts;
}

constexpr const char* kMainShows = "main() shows them all: leave it as it is";

void judge_sizes(const Case& one, const Row& sizes) {
  const auto wanted = parts_of(one);
  const double sum = std::accumulate(sizes.begin(), sizes.end(), 0.0);
  expect(sizes == wanted,
         format("{}: the parts are {}, and chunk makes {}", named(one), sizes.empty() ? "none" : shown(sizes),
                shown(wanted)),
         {{one.devices > 1 && sizes == Row{sum} && sum == one.samples,
           format("device 0 gets all {} samples", one.samples),
           "how many does each get when they share the work?"},
          {sum < one.samples, format("samples that never see a device: {}", shown(one.samples - sum)),
           "a division of whole numbers rounds down"},
          {sum > one.samples, format("that is {} samples", shown(sum)), "the last part is what is left"},
          {std::count(sizes.begin(), sizes.end(), 0.0) > 0, "there is a part of 0 samples",
           "a device without work is not in the list: a mean over no samples is not a number"},
          {sizes.size() == wanted.size() && sizes.back() > sizes.front(),
           "what is left over goes to the last device",
           "then everybody waits for the last device; round up, and it gets less"},
          {true, "these are as equal as can be, or cut in another way",
           "the first devices get as many as samples / devices rounded up"}});
}

// sample by sample: 0, 7, 4, 1, 8, ...
Row samples_outputs(int begin, int samples) {
  Row outputs;
  for (int i = begin; i < begin + samples; ++i) outputs.push_back(7 * i % 10);
  return outputs;
}

// the parts' outputs in the order in which main() has the devices done
Rows as_done(const Case& one) {
  Rows done;
  int begin = 0;
  for (const double samples : parts_of(one)) {
    done.insert(done.begin() + std::ssize(done) / 2, samples_outputs(begin, static_cast<int>(samples)));
    begin += static_cast<int>(samples);
  }
  return done;
}

void judge_outputs(const Case& one, const Row& outputs) {
  const auto wanted = samples_outputs(0, one.samples);
  auto done = as_done(one);
  const bool is_as_done = outputs == flat(done);
  std::reverse(done.begin(), done.end());
  constexpr const char* kPlace =
      "each would be compared with another sample's target; output.device says where it belongs";
  expect(outputs == wanted,
         format("{}: the gathered outputs are {}, and the samples' order is {}", named(one), shown(outputs),
                shown(wanted)),
         {{outputs.size() < wanted.size(), "some are missing",
           "gather puts the outputs of all devices together"},
          {is_as_done, "they stand in the order in which the devices were done", kPlace},
          {outputs == flat(done), "that is the order in which the devices were done, turned round", kPlace},
          {std::is_sorted(outputs.begin(), outputs.end()), "they stand in order of size", kPlace},
          {outputs.size() == wanted.size() &&
               std::is_permutation(outputs.begin(), outputs.end(), wanted.begin()),
           "they stand in an order other than the devices' order", kPlace}});
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
  const Case cuts[] = {{8, 2}, {7, 3}, {8, 4}, {5, 4}, {3, 4}, {1, 1}};
  const auto run = run_to_its_end(attempt);
  const auto sizes = run.ranks[0].rows("sizes"), outputs = run.ranks[0].rows("outputs");
  for (size_t i = 0; i < std::min(std::size(cuts), sizes.size()); ++i) judge_sizes(cuts[i], sizes[i]);
  for (size_t i = 0; i < std::min(std::size(cuts), outputs.size()); ++i) judge_outputs(cuts[i], outputs[i]);
  expect(sizes.size() == std::size(cuts) && outputs.size() == std::size(cuts),
         format("{} of {} batches were shown", std::min(sizes.size(), outputs.size()), std::size(cuts)), {},
         kMainShows);
}

// --- devices.2: loss and gradient of (1.5 x - x x)^2, the mean over the batch

// how much each part's mean counts
using Weight = double (*)(double samples, double all, double parts);

Row part_of_batch(double begin, double samples) {
  Row mean = {0, 0};
  for (double x = begin + 1; x <= begin + samples; ++x) {
    const double error = 1.5 * x - x * x;
    mean[0] += error * error / samples;
    mean[1] += 2 * error * x / samples;
  }
  return mean;
}

Row weighed(const Case& one, Weight weight) {
  const auto parts = parts_of(one);
  Row whole = {0, 0};
  double begin = 0;
  for (const double samples : parts) {
    const auto mean = part_of_batch(begin, samples);
    for (size_t i = 0; i < 2; ++i)
      whole[i] += weight(samples, one.samples, static_cast<double>(parts.size())) * mean[i];
    begin += samples;
  }
  return whole;
}

void judge_loss(const Case& one, const Row& is) {
  const auto wanted = weighed(one, [](double samples, double all, double) { return samples / all; });
  const auto is_loss_of = [&](Weight weight) { return near(is[0], weighed(one, weight)[0]); };
  const auto what = format("{}: loss and gradient are {}, and {} for the whole batch", named(one), shown(is),
                           shown(wanted));
  expect(near(is, wanted, 1e-12), what,
         {{near(is, wanted), "right to 7 digits only: somewhere it was a float32",
           "the losses are doubles: .to(at::kFloat) and tensors that begin as floats cut them"},
          {near(is[0], wanted[0]), "the loss is right, but no way back leads through it",
           ".item() gives a plain number, of which autograd knows nothing"},
          {near(is, part_of_batch(0, parts_of(one)[0])), "that is the loss of device 0's part",
           "the other devices' losses are missing"},
          {is_loss_of([](double, double, double parts) { return 1 / parts; }),
           "that is the mean of the devices' means",
           "a sample on a device with few of them then counts more than the others"},
          {is_loss_of([](double, double, double) { return 1.0; }), "that is the sum of the devices' means",
           "with more devices the loss would be larger, for the same batch"},
          {is_loss_of([](double samples, double, double) { return samples; }),
           "that is the sum over all samples", "what makes a mean of a sum?"}},
         "each part counts for as many samples as it has");
}

LOCKSTEP_JUDGE("devices.2", attempt) {
  const Case batches[] = {{8, 2}, {5, 4}, {7, 3}, {3, 1}};
  const auto run = attempt.run({.world = 1});
  const auto losses = run.ranks[0].rows("loss"), gradients = run.ranks[0].rows("gradient");
  const auto are_numbers = [](const Rows& rows) {
    return std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.size() == 1; });
  };
  expect(losses.size() == std::size(batches) && gradients.size() == losses.size() && are_numbers(losses) &&
             are_numbers(gradients),
         format("{} of {} batches were shown, a number each", losses.size(), std::size(batches)), {},
         kMainShows);
  for (size_t i = 0; i < losses.size(); ++i) judge_loss(batches[i], {losses[i][0], gradients[i][0]});
}

// --- devices.3: a line's weight and bias after each of 3 steps

constexpr size_t kLineSteps = 3;

struct Way {
  bool refreshes;
  double (*share)(double begin, double samples, double all, double parts);
  const char* what = "";
  const char* think = "";
};

double by_samples(double, double samples, double all, double) {
  return samples / all;
}

const Way kWays[] = {
    {true, by_samples},
    {true, [](double, double, double, double) { return 0.0; },
     "these are still the parameters of the beginning", "no gradient has come to the first model"},
    {false, by_samples, "the replicas compute with the parameters of the beginning: they are not refreshed",
     "the optimiser moves the first model alone"},
    {true, [](double begin, double, double, double) { return begin == 0 ? 1.0 : 0.0; },
     "it has learned from device 0's samples alone", "the other replicas' gradients are missing"},
    {true, [](double, double, double, double) { return 1.0; },
     "the gradients are summed, and each part counts in full",
     "with more devices the steps become longer, for the same batch"},
    {true, [](double, double, double, double parts) { return 1 / parts; },
     "all parts count the same, whatever their size",
     "a part of 1 sample counts as much as one of 2: each for its share of the batch"},
};

Row after_step(const Row& line, const Case& one, const Way& way) {
  const auto parts = parts_of(one);
  const Row used = way.refreshes ? line : Row{0, 0};
  Row moved = line;
  double begin = 0;
  for (const double samples : parts) {
    const double share = way.share(begin, samples, one.samples, static_cast<double>(parts.size()));
    for (double x = begin + 1; x <= begin + samples; ++x) {
      const double error = used[0] * x + used[1] - x * x;
      moved[0] -= 0.01 * share * 2 * error * x / samples;
      moved[1] -= 0.01 * share * 2 * error / samples;
    }
    begin += samples;
  }
  return moved;
}

Rows trained_lines(const Case& one, const Way& way) {
  Rows lines = {{0, 0}};
  while (lines.size() <= kLineSteps) lines.push_back(after_step(lines.back(), one, way));
  return {lines.begin() + 1, lines.end()};
}

void judge_lines(const Case& one, const Rows& lines) {
  const auto wanted = trained_lines(one, kWays[0]);
  std::vector<Guess> guesses;
  for (const auto& way : kWays)
    guesses.push_back({near(flat(lines), flat(trained_lines(one, way))), way.what, way.think});
  expect(guesses[0].is,
         format("{}: after each step weight and bias are {}, and one device would have {}", named(one),
                shown(flat(lines)), shown(flat(wanted))),
         guesses,
         near(lines[0], wanted[0])
             ? "step 1 is right, and so is reduce(): do the replicas compute with both of "
               "the first model's parameters?"
             : "step 1 begins with equal parameters: look at reduce() first");
}

LOCKSTEP_JUDGE("devices.3", attempt) {
  const auto run = attempt.run({.world = 1});
  const auto lines = run.ranks[0].rows("line");
  const double shared = run.ranks[0].number("parameters in the first model's memory");
  expect(shared == 0,
         format("{} of the replicas' parameters are in the first model's memory: they are no copies",
                shown(shared)),
         {}, "a replica is on another device, with memory of its own: copy_() brings the numbers there");
  expect(lines.size() == 2 * kLineSteps,
         format("{} steps were shown, and there are {}", lines.size(), 2 * kLineSteps), {}, kMainShows);
  judge_lines({5, 2}, {lines.begin(), lines.begin() + kLineSteps});
  judge_lines({5, 3}, {lines.begin() + kLineSteps, lines.end()});
}

}  // namespace
}  // namespace lockstep::workshop
