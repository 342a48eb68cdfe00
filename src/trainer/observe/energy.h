#pragma once
// The energy of a rank's node and GPU, where a counter can be read.

#include <optional>
#include <string>
#include <vector>

namespace lockstep::train {

class EnergyMeter {
 public:
  /// `powercap`: the folder of RAPL's counters, or empty if another rank reads those of this node. `gpus`:
  /// the addresses on the PCI bus of the GPUs that this rank reads.
  EnergyMeter(const std::string& powercap, const std::vector<std::string>& gpus);

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
  std::vector<void*> gpus_;  // NVML's handles
  double gpus_begin_ = 0;
};

}  // namespace lockstep::train
