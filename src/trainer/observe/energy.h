#pragma once
// The energy of a rank's node and GPU, where a counter can be read.

#include <optional>
#include <string>
#include <vector>

namespace lockstep::train {

class EnergyMeter {
 public:
  /// `powercap`: the folder of RAPL's counters, or empty if another rank reads those of this node. `gpu_bus`:
  /// the GPU's address on the PCI bus, or empty if there is none, or another rank reads its counter.
  EnergyMeter(const std::string& powercap, const std::string& gpu_bus);

  /// Joules since the construction; nullopt = not measured.
  struct Joules {
    std::optional<double> processors, gpu;
  };
  /// Call it every few minutes: RAPL's counters start again from 0 after about 20.
  Joules read();

 private:
  struct Counter {
    std::string file;
    double range = 0, last = 0;  // microjoules
  };
  std::vector<Counter> counters_;
  double processors_ = 0;
  void* gpu_ = nullptr;  // NVML's handle
  double gpu_begin_ = 0;
};

}  // namespace lockstep::train
