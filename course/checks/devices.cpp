// Chapter 2: one process, many devices.
#include <algorithm>

#include "course/workshop/attempt.h"

namespace lockstep::workshop {
namespace {

struct Split {
  int samples, devices;
  std::string name() const {
    return format("{} sample{} on {} device{}", samples, samples == 1 ? "" : "s", devices,
                  devices == 1 ? "" : "s");
  }
};

// as at::chunk cuts
Row parts_of(const Split& split) {
  Row parts;
  for (double left = split.samples; left > 0; left -= parts.back())
    parts.push_back(std::min<double>((split.samples + split.devices - 1) / split.devices, left));
  return parts;
}

CHECK_OF("devices.1", attempt) {
  const Split splits[] = {{8, 2}, {7, 3}, {8, 4}, {5, 4}, {3, 4}, {1, 1}};
  const auto run = attempt.run({.world = 1});
  const auto& rank = run.ranks[0];
  const auto sizes = rank.rows("sizes", std::size(splits)), outputs = rank.rows("outputs", std::size(splits));
  for (size_t i = 0; i < std::size(splits); ++i) {
    const auto wanted = parts_of(splits[i]);
    expect(sizes[i] == wanted,
           format("{}: your parts are {}, but torch.chunk gives {}", splits[i].name(), shown(sizes[i]),
                  shown(wanted)),
           "give each device samples / devices, rounded up, until none are left; leave out a device without "
           "samples");
    Row in_order;
    for (int sample = 0; sample < splits[i].samples; ++sample) in_order.push_back(7 * sample % 10);
    expect(outputs[i] == in_order,
           format("{}: the gathered outputs are {}, but the order of the samples is {}", splits[i].name(),
                  shown(outputs[i]), shown(in_order)),
           "order them by output.device: otherwise each is compared with another sample's target");
  }
}

// --- devices.2: loss and gradient of (1.5 x - x x)^2, the mean over the batch

CHECK_OF("devices.2", attempt) {
  const Split batches[] = {{8, 2}, {5, 4}, {7, 3}, {3, 1}};
  const auto run = attempt.run({.world = 1});
  const auto losses = run.ranks[0].column("loss", std::size(batches)),
             gradients = run.ranks[0].column("gradient", std::size(batches));
  for (size_t i = 0; i < std::size(batches); ++i) {
    double loss = 0, gradient = 0;
    for (double x = 1; x <= batches[i].samples; ++x) {
      const double error = 1.5 * x - x * x;
      loss += error * error / batches[i].samples;
      gradient += 2 * error * x / batches[i].samples;
    }
    // a float32 on the way leaves 7 digits
    const auto what = [&](const char* of, double is, double wanted) {
      return format("{}: the {} is {:.12g}, but {:.12g} for the whole batch", batches[i].name(), of, is,
                    wanted);
    };
    expect(near(losses[i], loss, 1e-12), what("loss", losses[i], loss),
           "weight each part's mean by its number of samples; the losses are doubles");
    expect(near(gradients[i], gradient, 1e-12), what("gradient", gradients[i], gradient),
           "the loss is right: can backward go through it? .item() returns a plain number");
  }
}

// --- devices.3: a line's weight and bias after each of 3 steps on 5 samples

constexpr size_t kLineSteps = 3;

Rows line_by_step() {
  Rows lines;
  Row line = {0, 0};
  for (size_t step = 0; step < kLineSteps; ++step) {
    const auto used = line;
    for (double x = 1; x <= 5; ++x) {
      const double error = used[0] * x + used[1] - x * x;
      line[0] -= 0.01 * 2 * error * x / 5;
      line[1] -= 0.01 * 2 * error / 5;
    }
    lines.push_back(line);
  }
  return lines;
}

CHECK_OF("devices.3", attempt) {
  const auto run = attempt.run({.world = 1});
  const auto& rank = run.ranks[0];
  expect(rank.number("parameters in the first model's memory") == 0,
         "some of the replicas' parameters share the first model's memory, so they are not copies",
         "give each replica memory of its own on its device, and copy the values with copy_()");
  const auto lines = rank.rows("line", 2 * kLineSteps), wanted = line_by_step();
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto step = i % kLineSteps;
    expect(near(lines[i], wanted[step]),
           format("5 samples on {} devices: after step {} weight and bias are {}, but on one device {}",
                  i < kLineSteps ? 2 : 3, step + 1, shown(lines[i]), shown(wanted[step])),
           step == 0 ? "weight each device's gradient by its share of the samples in reduce()"
                     : "step 1 and reduce() are right: do the replicas use the current parameters?");
  }
}

}  // namespace
}  // namespace lockstep::workshop
