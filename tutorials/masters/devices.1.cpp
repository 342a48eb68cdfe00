//@ title      Split a batch among devices, and gather the outputs
//@ hint       How large is the largest part when 3 devices share 7 samples without a remainder?
//@ hint       Integer division samples / devices rounds down. (samples + devices - 1) / devices rounds up.
//@ hint       Each device takes that many, or the rest: std::min(each, samples - taken). Stop when no samples are left.
//@ hint       To gather, put the outputs of device d at index d of a vector, and join them with torch::cat(vector).
#include <lockstep/workshop.h>

// A batch of 7 samples on 3 devices is split into parts of 3, 3 and 1: the first devices get 7 / 3 samples rounded up,
// the next one gets the rest. Devices without samples are not in the list: 3 samples on 4 devices are 1, 1, 1.
std::vector<int64_t> part_sizes(int64_t samples, int64_t devices) {
  //@ todo
  // TODO: add the number of samples for each device that has any
  (void)devices;
  return {samples};
  //@ solution
  const int64_t each = (samples + devices - 1) / devices;
  std::vector<int64_t> sizes;
  for (int64_t taken = 0; taken < samples; taken += each) sizes.push_back(std::min(each, samples - taken));
  return sizes;
  //@ wrong floor
  return std::vector<int64_t>(static_cast<size_t>(devices), samples / devices);
  //@ wrong rest
  std::vector<int64_t> sizes(static_cast<size_t>(devices), samples / devices);
  sizes.back() += samples % devices;
  return sizes;
  //@ wrong for_ever
  const int64_t each = samples / devices;
  std::vector<int64_t> sizes;
  for (int64_t taken = 0; taken < samples; taken += each) sizes.push_back(std::min(each, samples - taken));
  return sizes;
  //@ wrong one_each
  return std::vector<int64_t>(static_cast<size_t>(std::min(samples, devices)), std::max<int64_t>(1, samples / devices));
  //@ wrong fair
  std::vector<int64_t> sizes(static_cast<size_t>(devices), samples / devices);
  for (int64_t left = 0; left < samples % devices; ++left) ++sizes[static_cast<size_t>(left)];
  return sizes;
  //@ wrong idle
  const int64_t each = (samples + devices - 1) / devices;
  std::vector<int64_t> sizes;
  for (int64_t device = 0; device < devices; ++device)
    sizes.push_back(std::clamp<int64_t>(samples - device * each, 0, each));
  return sizes;
  //@ end
}

// The output of a device. The list has them in the order in which devices finish, not in the order of the samples.
struct Output {
  size_t device;
  at::Tensor values;
};

// The outputs of the whole batch, in the order of its samples.
at::Tensor gather(const std::vector<Output>& finished) {
  //@ todo
  // TODO: return all outputs, in the order of the devices
  return finished.front().values;
  //@ solution
  std::vector<at::Tensor> values(finished.size());
  for (const auto& output : finished) values[output.device] = output.values;
  return torch::cat(values);
  //@ wrong fastest
  std::vector<at::Tensor> values;
  for (const auto& output : finished) values.push_back(output.values);
  return torch::cat(values);
  //@ wrong reversed
  std::vector<at::Tensor> values;
  for (const auto& output : finished) values.insert(values.begin(), output.values);
  return torch::cat(values);
  //@ wrong rotated
  std::vector<at::Tensor> values;
  for (const auto& output : finished) values.push_back(output.values);
  std::rotate(values.begin(), values.end() - 1, values.end());
  return torch::cat(values);
  //@ wrong by_first
  std::vector<at::Tensor> values;
  for (const auto& output : finished) values.push_back(output.values);
  std::sort(values.begin(), values.end(),
            [](const auto& a, const auto& b) { return a[0].template item<int64_t>() < b[0].template item<int64_t>(); });
  return torch::cat(values);
  //@ wrong sorted
  std::vector<at::Tensor> values;
  for (const auto& output : finished) values.push_back(output.values);
  return std::get<0>(torch::cat(values).sort());
  //@ end
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
