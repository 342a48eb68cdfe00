#pragma once
// Parameters of one rank on several GPUs: kernels over many tensors take those of one device.

#include <algorithm>
#include <map>
#include <vector>

namespace lockstep::optim {

/// Calls work(slots) for each device's, in the order of the devices; once where all are on one.
template <class Slot, class Work>
void per_device(const std::vector<Slot>& slots, const Work& work) {
  const auto index_of = [](const Slot& slot) { return slot.param.device().index(); };
  const auto first = index_of(slots.front());
  if (std::all_of(slots.begin(), slots.end(), [&](const Slot& slot) { return index_of(slot) == first; }))
    return work(slots);
  std::map<int, std::vector<Slot>> devices;
  for (const auto& slot : slots) devices[index_of(slot)].push_back(slot);
  for (const auto& [device, there] : devices) work(there);
}

}  // namespace lockstep::optim
