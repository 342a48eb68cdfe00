#include "trainer/observe/energy.h"

#include <dlfcn.h>

#include <filesystem>

#include "lockstep/base/files/file.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

template <class Function>
Function* nvml(const char* name) {
  static void* const library = ::dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
  return library ? reinterpret_cast<Function*>(::dlsym(library, name)) : nullptr;
}

void* nvml_handle(const std::string& bus) {
  const auto init = nvml<int()>("nvmlInit_v2");
  const auto find = nvml<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
  void* handle = nullptr;
  if (!init || !find || init() != 0 || find(bus.c_str(), &handle) != 0) return nullptr;
  return handle;
}

// All together, since the driver was loaded; GPUs before Volta do not count it.
std::optional<double> joules_of(const std::vector<void*>& gpus) {
  const auto count = nvml<int(void*, unsigned long long*)>("nvmlDeviceGetTotalEnergyConsumption");
  double sum = 0;
  for (void* const gpu : gpus) {
    unsigned long long millijoules = 0;
    if (!gpu || !count || count(gpu, &millijoules) != 0) return std::nullopt;
    sum += static_cast<double>(millijoules) / 1e3;
  }
  return gpus.empty() ? std::nullopt : std::optional(sum);
}

// The zones intel-rapl:0 ("package-0") and intel-rapl:0:2 ("dram"); AMD's processors have the same. "core"
// and "uncore" are parts of a package, and "psys" contains it.
bool is_counted(const fs::path& zone) {
  const auto name = base::first_line(zone / "name");
  return zone.filename().string().starts_with("intel-rapl:") &&
         (name.starts_with("package") || name == "dram");
}

}  // namespace

EnergyMeter::EnergyMeter(const std::string& powercap, const std::vector<std::string>& gpus) {
  for (const auto& bus : gpus) gpus_.push_back(nvml_handle(bus));
  gpus_begin_ = joules_of(gpus_).value_or(0);
  std::error_code none;
  for (const auto& zone : fs::directory_iterator(powercap, none)) {
    if (!is_counted(zone)) continue;
    const auto file = zone.path() / "energy_uj";
    const auto now = base::number_in(base::first_line(file));
    if (!now) {  // on most systems only root may read it
      counters_.clear();
      return;
    }
    const auto range = base::number_in(base::first_line(zone.path() / "max_energy_range_uj"));
    counters_.push_back({file, static_cast<double>(range.value_or(0)), static_cast<double>(*now)});
  }
}

EnergyMeter::Joules EnergyMeter::read() {
  for (auto& counter : counters_) {
    const auto text = base::first_line(counter.file);
    const auto now =
        static_cast<double>(base::number_in(text).value_or(static_cast<long long>(counter.last)));
    processors_ += (now - counter.last + (now < counter.last ? counter.range : 0)) / 1e6;
    counter.last = now;
  }
  Joules joules;
  if (!counters_.empty()) joules.processors = processors_;
  if (const auto now = joules_of(gpus_)) joules.gpu = *now - gpus_begin_;
  return joules;
}

}  // namespace lockstep::train
