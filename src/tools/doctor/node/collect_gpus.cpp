// The GPUs that this process may use, as the driver tells of them, and the cores beside each.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "lockstep/base/files/small_file.h"
#include "lockstep/launch/device.h"
#include "tools/doctor/node/collect.h"

namespace lockstep::doctor {
namespace {

constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*

template <class Function>
Function* find(const char* name) {
  static void* library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  return library ? reinterpret_cast<Function*>(::dlsym(library, name)) : nullptr;
}

std::string text_of(int (*ask)(char*, int, int), int device) {
  std::array<char, 256> text{};
  return ask && ask(text.data(), static_cast<int>(text.size()) - 1, device) == 0 ? text.data() : "";
}

int attribute(int kind, int device) {
  const auto ask = find<int(int*, int, int)>("cuDeviceGetAttribute");
  int value = 0;
  return ask && ask(&value, kind, device) == 0 ? value : 0;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

Gpu gpu_of(int index) {
  const auto identity = launch::identify_gpu(index);
  Gpu gpu;
  gpu.uuid = identity.uuid;
  gpu.bus = lower(identity.bus);
  int device = 0;
  const auto get = find<int(int*, int)>("cuDeviceGet");
  if (!get || get(&device, index) != 0) return gpu;
  gpu.name = text_of(find<int(char*, int, int)>("cuDeviceGetName"), device);
  gpu.major = attribute(kMajor, device);
  gpu.minor = attribute(kMinor, device);
  const auto memory = find<int(size_t*, int)>("cuDeviceTotalMem_v2");
  size_t bytes = 0;
  if (memory && memory(&bytes, device) == 0) gpu.memory = static_cast<long long>(bytes);
  return gpu;
}

}  // namespace

void collect_gpus(RankFacts& facts, const DoctorSettings& settings) {
  facts.wanted = settings.device;
  if (settings.device == "cpu") return;
  const launch::GpuCount count = launch::count_gpus(settings.environment);
  facts.gpus_because = count.because;
  if (const auto ask = find<int(int*)>("cuDriverGetVersion")) ask(&facts.driver);
  if (facts.driver > 0)
    facts.versions["CUDA driver"] =
        std::to_string(facts.driver / 1000) + "." + std::to_string(facts.driver % 1000 / 10);
  for (int index = 0; index < count.count; ++index) {
    facts.gpus.push_back(gpu_of(index));
    const std::string& bus = facts.gpus.back().bus;
    facts.cores.gpu_near.push_back(
        bus.empty() ? "" : base::first_line("/sys/bus/pci/devices/" + bus + "/local_cpulist"));
  }
}

void choose_gpu(RankFacts& facts) {
  try {
    const launch::GpuCount count{static_cast<int>(facts.gpus.size()), facts.gpus_because};
    facts.gpu = launch::choose_device(facts.job, facts.wanted, count).index;
  } catch (const std::exception& error) {
    facts.device_error = error.what();
  }
}

}  // namespace lockstep::doctor
