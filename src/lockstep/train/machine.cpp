#include "lockstep/train/machine.h"

#include <ATen/Version.h>
#include <torch/version.h>

#include <fstream>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/base/words.h"

namespace lockstep::train {
namespace {

// x86's name; Arm's numbers, as it has no name.
std::string model_of_processor() {
  // a hypervisor's name may stand for several generations: their numbers do not
  constexpr const char* kNames[] = {"model name", "cpu family",      "model\t",
                                    "stepping",   "CPU implementer", "CPU part"};
  std::ifstream file("/proc/cpuinfo");
  std::vector<std::string> found;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    for (const char* name : kNames) {
      const auto colon = line.find(':');
      if (line.starts_with(name) && colon != std::string::npos)
        found.push_back(base::trimmed(line.substr(colon + 1)));
    }
  }
  return found.empty() ? "unknown" : base::join(found, " ");
}

struct Fact {
  const char* key;
  std::string here;
  const char* written;  // "written" with or on what
};

std::vector<Fact> facts() {
  return {{"libtorch", TORCH_VERSION, "written with libtorch"}, {"processor", processor(), "written on"}};
}

}  // namespace

std::string processor() {
  return format("{}, {}", model_of_processor(), at::get_cpu_capability());
}

void put_machine(const Tree& dict) {
  for (const auto& fact : facts()) put(dict, fact.key, fact.here);
}

std::vector<std::string> unlike_machine(const Tree& dict, Unrecorded unrecorded) {
  std::vector<std::string> unlike;
  for (const auto& fact : facts()) {
    const auto there = find(dict, fact.key);
    if (!there || there->isNone()) {
      if (unrecorded == Unrecorded::differs)
        unlike.push_back(format("{} something that it does not tell", fact.written));
      continue;
    }
    const auto written = as_string(*there, fact.key);
    if (written != fact.here)
      unlike.push_back(format("{} {}, and this is {}", fact.written, written, fact.here));
  }
  return unlike;
}

}  // namespace lockstep::train
