// What libtorch makes of this processor and these GPUs.
#include <ATen/Version.h>

#include <array>
#include <sstream>

#include "lockstep/base/files/small_file.h"
#include "lockstep/comm/cuda_plugin.h"
#include "tools/doctor/node/collect.h"
#include "tools/doctor/node/libtorch.h"

namespace lockstep::doctor {
namespace {

constexpr std::array kFlags = {"avx2",        "fma",      "avx512f", "avx512_vnni",
                               "avx512_bf16", "amx_tile", "amx_bf16"};

std::vector<std::string> processor_flags() {
  std::istringstream words(base::field("/proc/cpuinfo", "flags"));
  std::vector<std::string> found;
  for (std::string word; words >> word;) {
    for (const char* flag : kFlags) {
      if (word == flag) found.push_back(word);
    }
  }
  return found;
}

}  // namespace

// "...-gencode;arch=compute_90,code=sm_90;-gencode;arch=compute_90,code=compute_90..."
std::vector<std::string> architectures_in(const std::string& config) {
  std::vector<std::string> found;
  constexpr std::string_view kCode = "code=";
  for (size_t at = config.find(kCode); at != std::string::npos; at = config.find(kCode, at + 1)) {
    const size_t begin = at + kCode.size();
    found.push_back(config.substr(begin, config.find_first_of(";, \n", begin) - begin));
  }
  return found;
}

// the GPUs' half of libtorch is loaded only where there are GPUs
void collect_libtorch(RankFacts& facts, const DoctorSettings&) {
  facts.cpu_flags = processor_flags();
  const bool built_in = facts.versions["CUDA"] != "not built in";
  if (!facts.gpus.empty() && built_in) comm::cuda();  // before anything else of libtorch
  facts.cpu_capability = at::get_cpu_capability();
  if (!facts.gpus.empty() && built_in) facts.torch_archs = architectures_in(at::show_config());
}

}  // namespace lockstep::doctor
