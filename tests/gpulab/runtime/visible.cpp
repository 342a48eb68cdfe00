#include "visible.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <string>

namespace pretended {
namespace {

constexpr const char* kGpu = "GPU-";
constexpr const char* kSlice = "MIG-";

std::vector<std::string> entries_of(const std::string& list) {
  std::vector<std::string> entries;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    std::string entry = list.substr(begin, end - begin);
    entry.erase(0, entry.find_first_not_of(" \t"));
    entry.erase(entry.find_last_not_of(" \t") + 1);
    entries.push_back(entry);
    begin = end + 1;
  }
  return entries;
}

// The first slice of a divided GPU stands for it.
std::optional<Device> first_of(const std::vector<Device>& machine, int gpu) {
  for (const Device& device : machine)
    if (device.gpu == gpu) return device;
  return std::nullopt;
}

// As strtoul does, "1gpu" is 1.
std::optional<int> gpu_of_number(const std::vector<int>& numbers, const std::string& entry) {
  size_t at = entry.starts_with("+") ? 1 : 0;
  if (at >= entry.size() || !std::isdigit(static_cast<unsigned char>(entry[at]))) return std::nullopt;
  size_t number = 0;
  for (; at < entry.size() && std::isdigit(static_cast<unsigned char>(entry[at])); ++at)
    number = std::min<size_t>(number * 10 + static_cast<size_t>(entry[at] - '0'), numbers.size());
  return number < numbers.size() ? std::optional(numbers[number]) : std::nullopt;
}

// A prefix that fits one GPU alone.
std::optional<int> gpu_of_uuid(const std::vector<int>& numbers, const std::string& entry) {
  std::optional<int> found;
  for (const int gpu : numbers) {
    if (!name_of_gpu(gpu).starts_with(entry)) continue;
    if (found) return std::nullopt;
    found = gpu;
  }
  return found;
}

// MIG-UUID, or the older MIG-GPU-UUID/GPU instance/compute instance.
std::optional<Device> slice_of(const std::vector<Device>& machine, const std::string& entry) {
  for (const Device& device : machine) {
    if (device.slice < 0) continue;
    const std::string older =
        std::string(kSlice) + name_of_gpu(device.gpu) + "/" + std::to_string(device.slice + 1) + "/0";
    if (entry == name_of(device) || entry == older) return device;
  }
  return std::nullopt;
}

std::string kind_of(const std::string& entry) {
  for (const char* kind : {kGpu, kSlice})
    if (entry.starts_with(kind)) return kind;
  return "";
}

std::optional<Device> device_of(const std::vector<Device>& machine, const std::vector<int>& numbers,
                                const std::string& entry) {
  if (kind_of(entry) == kSlice) return slice_of(machine, entry);
  const auto gpu = kind_of(entry) == kGpu ? gpu_of_uuid(numbers, entry) : gpu_of_number(numbers, entry);
  return gpu ? first_of(machine, *gpu) : std::nullopt;
}

std::vector<Device> one_slice(std::vector<Device> devices) {
  const auto slice =
      std::find_if(devices.begin(), devices.end(), [](const Device& d) { return d.slice >= 0; });
  return slice == devices.end() ? devices : std::vector<Device>{*slice};
}

}  // namespace

std::vector<int> numbered(const std::vector<Device>& machine, bool by_bus, int fastest) {
  std::set<int> gpus;
  for (const Device& device : machine) gpus.insert(device.gpu);
  std::vector<int> numbers(gpus.begin(), gpus.end());
  if (!by_bus)
    std::stable_partition(numbers.begin(), numbers.end(), [fastest](int gpu) { return gpu == fastest; });
  return numbers;
}

std::vector<Device> visible(const std::vector<Device>& machine, const std::vector<int>& numbers,
                            const char* list) {
  std::vector<Device> chosen;
  if (!list) {
    for (const int gpu : numbers) chosen.push_back(*first_of(machine, gpu));
    return one_slice(chosen);
  }
  const auto entries = entries_of(list);
  for (const std::string& entry : entries) {
    const auto device =
        kind_of(entry) == kind_of(entries.front()) ? device_of(machine, numbers, entry) : std::nullopt;
    if (!device) break;
    if (std::find(chosen.begin(), chosen.end(), *device) != chosen.end()) return {};
    chosen.push_back(*device);
  }
  return one_slice(chosen);
}

}  // namespace pretended
