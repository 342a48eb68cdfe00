#include "tools/doctor/node/facts.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Job, rank, world, local_rank, local_world, node_rank, nodes,
                                                host, launcher, scheduler, job_id, because, phantom,
                                                phantom_hint, warnings, guessed)
}

namespace lockstep::doctor {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Gpu, uuid, name, bus, memory, major, minor)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Cores, mask, whole, cores, machine_cores, machine_threads,
                                                quota, quota_file, numa, gpu_near)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Memory, total, available, swap, limit, used, limit_file,
                                                shm_total, shm_free, shm_device, shm_error)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Walls, container, nvidia_devices, nvidia_kernel, cuda_library,
                                                infiniband, blocked_signals, no_folder)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Limit, soft, hard)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ProcessLimits, files, locked, core, stack, processes, memory)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RankFacts, job, pid, pid_space, machine, clock, versions,
                                                variables, wanted, device_error, driver, gpus, gpu,
                                                gpus_because, cores, memory, limits, walls, host_error,
                                                host_addresses, cpu_capability, cpu_flags, torch_archs,
                                                failed)

std::string pack(const RankFacts& facts) {
  // the environment may hold bytes that are no UTF-8
  return base::as_line(nlohmann::json(facts));
}

RankFacts unpack(const std::string& text) {
  try {
    return nlohmann::json::parse(text).get<RankFacts>();
  } catch (const nlohmann::json::exception&) {
    throw Error("a rank tells its facts in another way", "the doctor",
                "start the same lockstep on every rank");
  }
}

}  // namespace lockstep::doctor
