#pragma once
// One process of a job: its rank, and what it will compute on.

#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/launch/identify.h"
#include "lockstep/launch/process/runtime.h"

namespace lockstep::whoami {

struct Process {
  Job job;
  long pid = 0;
  std::string device;
  int threads = 0;
  std::string cpus;          // the hardware threads it may run on, "0-3,8"
  std::string device_error;  // why there is no device
};

/// This one; `device` is what is asked for. A device that is missing is in it, and no exception.
Process own_process(const launch::Runtime& runtime, const std::string& device,
                    const launch::Environment& environment);

nlohmann::ordered_json to_json(const Process& process);
/// As it travels to rank 0.
std::string pack(const Process& process);
Process unpack(const std::string& text);

}  // namespace lockstep::whoami
