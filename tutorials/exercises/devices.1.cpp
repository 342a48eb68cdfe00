#include <lockstep/workshop.h>

// A batch of 7 samples on 3 devices is split into parts of 3, 3 and 1: the first devices get 7 / 3 samples rounded up,
// the next one gets the rest. Devices without samples are not in the list: 3 samples on 4 devices are 1, 1, 1.
std::vector<int64_t> part_sizes(int64_t samples, int64_t devices) {
  // TODO: add the number of samples for each device that has any
  (void)devices;
  return {samples};
}

// The output of a device. The list has them in the order in which devices finish, not in the order of the samples.
struct Output {
  size_t device;
  at::Tensor values;
};

// The outputs of the whole batch, in the order of its samples.
at::Tensor gather(const std::vector<Output>& finished) {
  // TODO: return all outputs, in the order of the devices
  return finished.front().values;
}

int main() {
  return lockstep::run([] {
    const std::vector<std::pair<int64_t, int64_t>> cases = {{8, 2}, {7, 3}, {8, 4}, {5, 4}, {3, 4}, {1, 1}};
    for (const auto& [samples, devices] : cases) {
      const auto sizes = part_sizes(samples, devices);
      lockstep::show("sizes", sizes);

      std::vector<Output> finished;
      int64_t begin = 0;
      for (const int64_t size : sizes) {
        if (size < 0 || begin + size > samples) break;                     // more than all samples
        const auto part = torch::arange(samples).slice(0, begin, begin + size);  // sample 0, 1, 2, ...
        const Output output = {finished.size(), 7 * part % 10};
        finished.insert(finished.begin() + std::ssize(finished) / 2, output);  // with four: 1, 3, 2, 0
        begin += size;
      }
      if (!finished.empty()) lockstep::show("outputs", gather(finished));
    }
  });
}
