#include "lockstep/launch/device.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/launch/variables.h"

namespace lockstep::launch {
namespace {

constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";
constexpr int kCudaNoDevice = 100;  // CUDA_ERROR_NO_DEVICE

// "", "-1" and "NoDevFiles" (Slurm's) hide every GPU
bool hides_all(const Environment& environment) {
  if (!is_set(environment, kVisible)) return false;
  const std::string text = text_of(environment, kVisible);
  return text.empty() || text.starts_with("-") || text == "NoDevFiles";
}

// Without a sign of a driver dlopen would search some fifty paths for it, on every rank.
bool may_have_driver(const Environment& environment) {
  constexpr std::array kSigns = {"/dev/nvidiactl", "/proc/driver/nvidia", "/dev/dxg",
                                 "/dev/nvmap",     "/usr/bin/nvidia-smi", "/usr/bin/nvidia-modprobe"};
  std::istringstream folders(text_of(environment, "LD_LIBRARY_PATH"));
  for (std::string folder; std::getline(folders, folder, ':');)
    if (::access((folder + "/libcuda.so.1").c_str(), F_OK) == 0) return true;
  return std::ranges::any_of(kSigns, [](const char* path) { return ::access(path, F_OK) == 0; });
}

GpuCount ask_driver(void* library) {
  using Init = int(unsigned);
  using Count = int(int*);
  const auto init = reinterpret_cast<Init*>(dlsym(library, "cuInit"));
  const auto count = reinterpret_cast<Count*>(dlsym(library, "cuDeviceGetCount"));
  if (!init || !count) return {0, "libcuda.so.1 lacks cuInit or cuDeviceGetCount"};
  if (const int code = init(0); code != 0) {
    return {0, code == kCudaNoDevice ? "the CUDA driver sees no GPU"
                                     : format("cuInit failed with code {}", code)};
  }
  int found = 0;
  if (const int code = count(&found); code != 0)
    return {0, format("cuDeviceGetCount failed with code {}", code)};
  return {found, "counted by the CUDA driver"};
}

std::string seen(const GpuCount& visible) {
  return format("{} visible GPU{} ({})", visible.count, visible.count == 1 ? "" : "s", visible.because);
}

void require_numbers(const OwnGpus& own) {
  if (std::ranges::all_of(own, [](auto gpu) { return gpu >= 0; })) return;
  throw InputError(format("a rank's GPUs are numbered from 0 (got {})", std::ranges::min(own)),
                   "the GPUs of a rank", "number the GPUs of a rank from 0: {0, 1}");
}

// How many GPUs a rank has, including unused ones.
int gpu_count(const OwnGpus& own) {
  return own.empty() ? 1 : static_cast<int>(*std::max_element(own.begin(), own.end())) + 1;
}

// A rank's GPUs from `begin` on.
DeviceChoice gpus_from(int begin, const OwnGpus& own, const std::string& because) {
  DeviceChoice choice{.because = because};
  for (const auto gpu : own.empty() ? OwnGpus{0} : own) choice.all.push_back(begin + static_cast<int>(gpu));
  choice.index = choice.all.front();
  choice.name = format("cuda:{}", choice.index);
  return choice;
}

// "cuda:2 and cuda:3", "cuda:4 to cuda:7"
std::string span_of(int begin, int count) {
  const char* between = count == 2 ? "and" : "to";
  return count == 1 ? format("cuda:{}", begin)
                    : format("cuda:{} {} cuda:{}", begin, between, begin + count - 1);
}

std::string too_few_gpus_hint(int count, int visible) {
  if (visible < count) return format("request {} GPUs per rank, or set launch.device to cpu", count);
  return format("start at most {} rank{} per node{}, or set launch.device to cpu", visible / count,
                visible / count == 1 ? "" : "s", count == 1 ? "" : format(" ({} GPUs each)", count));
}

// Why the options need the tensors on CPUs, or empty.
std::string why_only_cpu(const LaunchOptions& options) {
  if (sums_on_cpus(options.backend)) return "launch.backend is " + options.backend;
  return options.has_algorithm() ? "launch.allreduce is " + options.allreduce : "";
}

}  // namespace

bool sums_on_cpus(const std::string& backend) {
  return backend == "shared" || backend == "gloo" || backend == "mpi";
}

bool is_staged(const LaunchOptions& options) {
  return options.device == "cuda" && !options.has_algorithm() &&
         (options.backend == "shared" || options.backend == "gloo");
}

GpuCount count_gpus(const Environment& environment) {
  const std::string narrowed = is_set(environment, kVisible) ? quote(environment, kVisible) : "";
  if (hides_all(environment)) return {0, narrowed};
  // not closed, because libtorch opens the same driver later
  void* library = may_have_driver(environment) ? dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) : nullptr;
  if (!library) return {0, "no CUDA driver (libcuda.so.1) on this host"};
  GpuCount result = ask_driver(library);
  if (!narrowed.empty()) result.because += ", " + narrowed;
  return result;
}

DeviceChoice choose_device(const Job& job, const std::string& wanted, const GpuCount& visible,
                           const OwnGpus& own) {
  require_numbers(own);
  if (wanted == "cpu") return {"cpu", -1, "launch.device is cpu"};
  if (wanted != "auto" && wanted != "cuda")
    throw InputError(format("the device must be auto, cpu or cuda (got {})", wanted), "launch.device",
                     "use auto, cpu or cuda");
  const std::string where = format("rank {} of {} on host {}", job.rank, job.world, job.host);
  if (visible.count <= 0 && wanted == "auto") return {"cpu", -1, seen(visible)};
  if (visible.count <= 0) {
    throw InputError(format("launch.device is cuda, but rank {} has no GPU: {}", job.rank, visible.because),
                     where,
                     "ask the scheduler for GPUs (--gpus-per-node, ngpus=), or set launch.device to cpu")
        .of(Code::gpu, {job.rank});
  }
  const int count = gpu_count(own), begin = job.local_rank * count;
  if (visible.count == count)
    return gpus_from(0, own, "the " + (count == 1 ? "one " + seen(visible).substr(2) : seen(visible)));
  if (begin + count > visible.count) {
    throw InputError(
        format("too few GPUs: rank {} is local rank {} of {}{} and sees {}", job.rank, job.local_rank,
               job.local_world, count == 1 ? "" : format(", needs {}", span_of(begin, count)), seen(visible)),
        where, too_few_gpus_hint(count, visible.count))
        .of(Code::gpu, {job.rank});
  }
  return gpus_from(begin, own, format("local rank {} among {}", job.local_rank, seen(visible)));
}

DeviceChoice choose_staged(const Job& job, const GpuCount& visible, const OwnGpus& own) {
  if (visible.count == 0 || gpu_count(own) > 1 || visible.count >= job.local_world)
    return choose_device(job, "cuda", visible, own);
  const auto place = std::int64_t{job.local_rank} * visible.count / job.local_world;
  return gpus_from(static_cast<int>(place), own,
                   format("local rank {} of {} shares {}", job.local_rank, job.local_world, seen(visible)));
}

GpuIdentity identify_gpu(int index) {
  using Get = int(int*, int);
  using Uuid = int(unsigned char*, int);
  using Bus = int(char*, int, int);
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!library) return {};
  const auto get = reinterpret_cast<Get*>(dlsym(library, "cuDeviceGet"));
  // the newer call distinguishes the parts of a divided GPU
  auto uuid = reinterpret_cast<Uuid*>(dlsym(library, "cuDeviceGetUuid_v2"));
  if (!uuid) uuid = reinterpret_cast<Uuid*>(dlsym(library, "cuDeviceGetUuid"));
  const auto bus = reinterpret_cast<Bus*>(dlsym(library, "cuDeviceGetPCIBusId"));
  int device = 0;
  if (!get || get(&device, index) != 0) return {};
  GpuIdentity identity;
  if (std::array<unsigned char, 16> bytes{}; uuid && uuid(bytes.data(), device) == 0) {
    identity.uuid = "GPU-";
    for (const unsigned char byte : bytes) identity.uuid += format("{:02x}", byte);
  }
  if (std::array<char, 32> text{}; bus && bus(text.data(), text.size(), device) == 0)
    identity.bus = text.data();
  return identity;
}

DeviceChoice choose_device(const Job& job, const LaunchOptions& options, const Environment& environment,
                           const OwnGpus& own) {
  if (is_staged(options)) return choose_staged(job, count_gpus(environment), own);
  const std::string reason = why_only_cpu(options);
  if (reason.empty() || (options.device != "auto" && options.device != "cuda"))
    return choose_device(job, options.device, options.device == "cpu" ? GpuCount{} : count_gpus(environment),
                         own);
  if (options.device == "cuda")
    throw InputError(reason + ", which sums on CPUs, and launch.device is cuda", "launch.device",
                     "leave launch.backend and launch.allreduce at auto, or set launch.device to cpu");
  const GpuCount visible = count_gpus(environment);
  DeviceChoice choice{"cpu", -1, reason + ", which sums on CPUs"};
  if (visible.count > 0)
    choice.warning = format(
        "the {} not used, because {}. To use {}, set launch.backend and launch.allreduce to auto",
        visible.count == 1 ? "GPU is" : "GPUs are", choice.because, visible.count == 1 ? "it" : "them");
  return choice;
}

}  // namespace lockstep::launch
