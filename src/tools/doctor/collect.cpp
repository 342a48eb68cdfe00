// The facts of one rank and its node.
#include <ATen/Version.h>
#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <set>

#include "lockstep/base/files/file.h"
#include "lockstep/base/files/shared_memory.h"
#include "lockstep/base/format.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/cuda_plugin.h"
#include "lockstep/comm/rendezvous/network.h"
#include "lockstep/launch/control_groups.h"
#include "lockstep/launch/device.h"
#include "lockstep/launch/layout.h"
#include "lockstep/launch/process/cpus.h"
#include "lockstep/launch/process/stop_signal.h"
#include "lockstep/launch/variables.h"
#include "tools/doctor/doctor.h"

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kNameService{5'000};
constexpr size_t kSharedProbe = 1 << 20;   // bytes in /dev/shm
constexpr long long kNoLimit = 1LL << 60;  // control groups version 1 report a number near 2^63

void collect_environment(RankFacts& facts, const DoctorSettings& settings) {
  // Variables of launchers, schedulers and libraries. No other variable leaves the process.
  const auto concerned = base::split(
      "SLURM* PBS_* OMPI_* PMI_* PMIX_* PALS_* FLUX_* LSB_* JSM_* PRTE_* MPI* I_MPI_* UCX_* FI_* NCCL_* "
      "GLOO_* OMP_* GOMP_* KMP_* MKL_* OPENBLAS_* TORCH_* CUDA_* LOCKSTEP_* APPTAINER_* SINGULARITY_* "
      "HWLOC_* MALLOC_* ATEN_* DNNL_* ONEDNN_* RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK "
      "MASTER_ADDR MASTER_PORT NCPUS LD_PRELOAD TMPDIR TORCHELASTIC_RUN_ID",
      ' ');
  // Used between an MPI's daemons: long, and they contain the job's keys.
  const auto internal =
      base::split("OMPI_MCA_orte_* OMPI_MCA_pmix* PMIX_SERVER_* PMIX_DSTORE_* PRTE_MCA_*", ' ');
  for (const auto& [name, value] : settings.environment)
    if (base::is_among(name, concerned) && !base::is_among(name, internal)) facts.variables[name] = value;
  facts.versions = settings.versions;
  utsname system{};
  if (::uname(&system) == 0) facts.versions["kernel"] = system.release;
}

// With the other hardware threads of each core: two ranks on one core slow each other down.
std::string whole_cores(const std::string& mask) {
  std::set<std::string> siblings;
  for (const int cpu : cpus_in(mask))
    siblings.insert(
        base::first_line(format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu)));
  siblings.erase("");
  return siblings.empty() ? mask : base::join({siblings.begin(), siblings.end()}, ",");
}

void collect_cores(RankFacts& facts, const DoctorSettings&) {
  const launch::CpuMask mask = launch::own_cpus();
  Cores& cores = facts.cores;
  cores.mask = mask.units;
  cores.cores = mask.cores;
  cores.machine_cores = mask.machine_cores;
  cores.whole = whole_cores(mask.units);
  if (const auto quota = launch::cpu_quota()) {
    cores.quota = quota->cores;
    cores.quota_file = quota->because;
  }
}

long long meminfo(const char* name) {
  const auto value = base::number_in(base::field("/proc/meminfo", std::string(name) + ":"));
  return value ? *value * 1024 : -1;
}

// The kernel counts the file cache as used, but frees it on demand.
void collect_group(Memory& memory) {
  for (const auto& [folder, version_1] : launch::control_groups("memory")) {
    const auto file = folder / (version_1 ? "memory.limit_in_bytes" : "memory.max");
    const auto limit = base::number_in(base::first_line(file));  // "max" is not a number
    if (!limit || *limit >= kNoLimit || (memory.limit >= 0 && *limit >= memory.limit)) continue;
    memory.limit = *limit;
    memory.limit_file = file.string();
    const auto used = base::first_line(folder / (version_1 ? "memory.usage_in_bytes" : "memory.current"));
    memory.used = base::number_in(used).value_or(-1);
    const auto cache = base::number_in(
        base::field(folder / "memory.stat", version_1 ? "total_inactive_file " : "inactive_file "));
    if (memory.used >= 0) memory.used = std::max(0LL, memory.used - cache.value_or(0));
  }
}

void collect_shm(Memory& memory) {
  struct stat folder {};
  if (::stat("/dev/shm", &folder) == 0) memory.shm_device = folder.st_dev;
  struct statvfs system {};
  if (::statvfs("/dev/shm", &system) == 0) {
    memory.shm_total = static_cast<long long>(system.f_blocks) * static_cast<long long>(system.f_frsize);
    memory.shm_free = static_cast<long long>(system.f_bavail) * static_cast<long long>(system.f_frsize);
  }
  try {
    base::SharedMemory::create(kSharedProbe).unlink();
  } catch (const std::exception& error) {
    memory.shm_error = error.what();
  }
}

void collect_memory(RankFacts& facts, const DoctorSettings&) {
  facts.memory.total = meminfo("MemTotal");
  facts.memory.available = meminfo("MemAvailable");
  facts.memory.swap = meminfo("SwapTotal");
  collect_group(facts.memory);
  collect_shm(facts.memory);
}

Limit limit_of(__rlimit_resource resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return {};
  const auto number = [](rlim_t value) {
    return value == RLIM_INFINITY ? -1 : static_cast<long long>(value);
  };
  return {number(limit.rlim_cur), number(limit.rlim_max)};
}

void collect_limits(RankFacts& facts, const DoctorSettings&) {
  facts.limits = {.files = limit_of(RLIMIT_NOFILE),
                  .locked = limit_of(RLIMIT_MEMLOCK),
                  .stack = limit_of(RLIMIT_STACK),
                  .processes = limit_of(RLIMIT_NPROC),
                  .memory = limit_of(RLIMIT_AS)};
}

bool exists(const char* path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string container_in(const launch::Environment& environment) {
  if (launch::is_set(environment, "APPTAINER_CONTAINER")) return "Apptainer";
  if (launch::is_set(environment, "SINGULARITY_CONTAINER") || exists("/.singularity.d")) return "Singularity";
  if (exists("/run/.containerenv")) return "Podman";
  return exists("/.dockerenv") ? "Docker" : "";
}

// The signals that end a job, of a mask as /proc/self/status shows it.
std::vector<std::string> signals_in(const std::string& mask) {
  const unsigned long long bits = std::strtoull(mask.c_str(), nullptr, 16);
  std::vector<std::string> names;
  for (const int signal : launch::StopSignals::kAll)
    if (bits >> (signal - 1) & 1) names.push_back(launch::signal_name(signal));
  return names;
}

void collect_system(RankFacts& facts, const DoctorSettings& settings) {
  facts.container = container_in(settings.environment);
  facts.nvidia_driver =
      exists("/dev/nvidia0") || exists("/dev/nvidiactl") || exists("/proc/driver/nvidia/version");
  facts.cuda_library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr;  // never closed
  facts.blocked_signals = signals_in(base::field("/proc/self/status", "SigBlk:"));
  std::error_code ignored;
  const auto temporary = launch::text_of(settings.environment, "TMPDIR");
  if (!temporary.empty() && !fs::is_directory(temporary, ignored)) facts.missing_tmpdir = temporary;
  facts.infiniband = fs::directory_iterator("/sys/class/infiniband", ignored) != fs::directory_iterator();
}

void collect_host(RankFacts& facts, const DoctorSettings&) {
  const auto found = comm::look_up(facts.job.host, 0, kNameService);
  if (found.code != 0) facts.host_error = ::gai_strerror(found.code);
  facts.host_addresses = comm::addresses_in(found);
}

// Calls a function of the CUDA driver. False if there is none, or it failed.
template <class... Args>
bool ask_driver(const char* name, Args... args) {
  static void* library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  const auto ask = library ? reinterpret_cast<int (*)(Args...)>(::dlsym(library, name)) : nullptr;
  return ask && ask(args...) == 0;
}

Gpu gpu_of(int index) {
  constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
  const auto identity = launch::identify_gpu(index);
  Gpu gpu{.uuid = identity.uuid, .bus = base::lower_case(identity.bus)};
  if (!gpu.bus.empty()) gpu.near = base::first_line("/sys/bus/pci/devices/" + gpu.bus + "/local_cpulist");
  int device = 0;
  if (!ask_driver("cuDeviceGet", &device, index)) return gpu;
  std::array<char, 256> name{};
  if (ask_driver("cuDeviceGetName", name.data(), static_cast<int>(name.size()) - 1, device))
    gpu.name = name.data();
  ask_driver("cuDeviceGetAttribute", &gpu.major, kMajor, device);
  ask_driver("cuDeviceGetAttribute", &gpu.minor, kMinor, device);
  ask_driver("cuDeviceTotalMem_v2", &gpu.memory, device);
  return gpu;
}

void collect_gpus(RankFacts& facts, const DoctorSettings& settings) {
  facts.wanted = settings.device;
  if (settings.device == "cpu") return;
  const launch::GpuCount count = launch::count_gpus(settings.environment);
  facts.gpus_because = count.because;
  int driver = 0;
  if (ask_driver("cuDriverGetVersion", &driver) && driver > 0)
    facts.versions["CUDA driver"] = format("{}.{}", driver / 1000, driver % 1000 / 10);
  for (int index = 0; index < count.count; ++index) facts.gpus.push_back(gpu_of(index));
}

// Loads the GPU half of libtorch only where there are GPUs.
void collect_libtorch(RankFacts& facts, const DoctorSettings&) {
  const auto flags = " " + base::field("/proc/cpuinfo", "flags") + " ";
  facts.has_avx2 = flags.find(" avx2 ") != std::string::npos;
  const bool with_cuda = !facts.gpus.empty() && facts.versions["CUDA"] != "not built in";
  if (with_cuda) comm::cuda();  // before anything else of libtorch
  facts.cpu_capability = at::get_cpu_capability();
  if (with_cuda) facts.torch_archs = architectures_in(at::show_config());
}

// A collector's error becomes an entry of facts.failed.
struct Collector {
  const char* name;
  void (*collect)(RankFacts& facts, const DoctorSettings& settings);
};

constexpr Collector kCollectors[] = {
    {"environment", collect_environment},
    {"cores", collect_cores},
    {"memory", collect_memory},
    {"limits", collect_limits},
    {"system", collect_system},
    {"host name", collect_host},
    {"GPUs", collect_gpus},
    {"libtorch", collect_libtorch},
};

}  // namespace

RankFacts collect(const DoctorSettings& settings, const std::function<void(const char* name)>& begin) {
  RankFacts facts;
  facts.job.host = launch::read_host_facts({}).host;
  facts.pid = ::getpid();
  facts.machine = launch::reported_place(facts.job).machine;
  for (const Collector& collector : kCollectors) {
    begin(collector.name);
    try {
      collector.collect(facts, settings);
    } catch (const std::exception& error) {
      facts.failed[collector.name] = error.what();
    }
  }
  return facts;
}

void choose_gpu(RankFacts& facts) {
  facts.device_error.clear();  // of the assumed local rank
  try {
    const launch::GpuCount count{static_cast<int>(facts.gpus.size()), facts.gpus_because};
    facts.gpu = launch::choose_device(facts.job, facts.wanted, count).index;
  } catch (const std::exception& error) {
    facts.device_error = error.what();
  }
}

std::vector<int> cpus_in(const std::string& mask) {
  std::vector<int> cpus;
  for (const auto& part : base::split(mask, ',')) {
    if (part.empty()) continue;
    const int first = std::atoi(part.c_str());
    const auto dash = part.find('-');
    const int last = dash == std::string::npos ? first : std::atoi(part.c_str() + dash + 1);
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

// "...-gencode;arch=compute_90,code=sm_90;-gencode;arch=compute_90,code=compute_90..."
std::vector<std::string> architectures_in(const std::string& config) {
  constexpr std::string_view kCode = "code=";
  std::vector<std::string> found;
  for (size_t at = config.find(kCode); at != std::string::npos; at = config.find(kCode, at + 1)) {
    const size_t begin = at + kCode.size();
    found.push_back(config.substr(begin, config.find_first_of(";, \n", begin) - begin));
  }
  return found;
}

}  // namespace lockstep::doctor
