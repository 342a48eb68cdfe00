// What stands around this process: limits, a container, signals that are held back, and its host's name.
#include <dlfcn.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>

#include "lockstep/base/files/small_file.h"
#include "lockstep/comm/meet/lookup.h"
#include "lockstep/launch/process/stop_signal.h"
#include "lockstep/launch/variables.h"
#include "tools/doctor/node/collect.h"

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kNameService{5'000};

bool exists(const char* path) {
  std::error_code none;
  return fs::exists(path, none);
}

Limit limit_of(__rlimit_resource resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return {};
  const auto bytes = [](rlim_t value) { return value == RLIM_INFINITY ? -1 : static_cast<long long>(value); };
  return {bytes(limit.rlim_cur), bytes(limit.rlim_max)};
}

struct Sign {
  const char* container;
  const char* file;
  const char* variable;
};

constexpr Sign kSigns[] = {{"Apptainer", nullptr, "APPTAINER_CONTAINER"},
                           {"Singularity", "/.singularity.d", "SINGULARITY_CONTAINER"},
                           {"Podman", "/run/.containerenv", nullptr},
                           {"Docker", "/.dockerenv", nullptr}};

std::string container_in(const launch::Environment& environment) {
  for (const Sign& sign : kSigns) {
    if ((sign.variable && launch::is_set(environment, sign.variable)) || (sign.file && exists(sign.file)))
      return sign.container;
  }
  return "";
}

// a mask as /proc/self/status shows it
std::vector<std::string> signals_in(const std::string& mask) {
  const unsigned long long bits = std::strtoull(mask.c_str(), nullptr, 16);
  std::vector<std::string> names;
  for (const int signal : launch::StopSignals::kAll) {
    if (bits >> (signal - 1) & 1) names.push_back(launch::signal_name(signal));
  }
  return names;
}

}  // namespace

void collect_limits(RankFacts& facts, const DoctorSettings&) {
  facts.limits = {.files = limit_of(RLIMIT_NOFILE),
                  .locked = limit_of(RLIMIT_MEMLOCK),
                  .core = limit_of(RLIMIT_CORE),
                  .stack = limit_of(RLIMIT_STACK),
                  .processes = limit_of(RLIMIT_NPROC),
                  .memory = limit_of(RLIMIT_AS)};
}

void collect_walls(RankFacts& facts, const DoctorSettings& settings) {
  Walls& walls = facts.walls;
  walls.container = container_in(settings.environment);
  walls.nvidia_devices = exists("/dev/nvidia0") || exists("/dev/nvidiactl");
  walls.nvidia_kernel = exists("/proc/driver/nvidia/version");
  walls.cuda_library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr;  // never closed
  walls.blocked_signals = signals_in(base::field("/proc/self/status", "SigBlk:"));
  std::error_code none;
  const auto temporary = launch::text_of(settings.environment, "TMPDIR");
  if (!temporary.empty() && !fs::is_directory(temporary, none)) walls.no_folder = temporary;
  walls.infiniband = fs::directory_iterator("/sys/class/infiniband", none) != fs::directory_iterator();
}

void collect_host(RankFacts& facts, const DoctorSettings&) {
  const auto found = comm::look_up(facts.job.host, 0, kNameService);
  if (found.code != 0) facts.host_error = ::gai_strerror(found.code);
  for (const addrinfo* entry = found.addresses.get(); entry; entry = entry->ai_next) {
    char text[NI_MAXHOST] = {};
    if (::getnameinfo(entry->ai_addr, entry->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0)
      continue;
    if (facts.host_addresses.empty() || facts.host_addresses.back() != text)
      facts.host_addresses.emplace_back(text);
  }
}

}  // namespace lockstep::doctor
