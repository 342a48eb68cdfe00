#include <csignal>
#include <map>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "comm/gloo_group.h"
#include "comm/group.h"
#include "comm/store.h"

namespace lockstep::comm {
namespace {

using Group = c10d::ProcessGroup;

std::string resolve(const std::string& backend, c10::Device device) {
  if (backend == "auto") return device.is_cuda() ? "nccl" : "gloo";
  if (backend == "gloo") return backend;
  throw InputError(format("there is no backend '{}'", backend), "launch.backend",
                   "choose auto, nccl, gloo or mpi");
}

// A write to a peer that is gone must be an error of that call, not the end of this process. Whoever has
// set a handler of his own keeps it.
void ignore_sigpipe() {
  struct sigaction now {};
  ::sigaction(SIGPIPE, nullptr, &now);
  if (now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

ProcessGroup connect(const Runtime& runtime, const GroupSettings& settings, c10::Device device) {
  const Job& job = runtime.job();
  const std::string name = resolve(settings.backend, device);
  ignore_sigpipe();
  c10d::setDebugLevelFromEnvironment();
  const StorePtr store = open_store(runtime, settings.join_timeout);
  const auto peers = meet(*store, job, settings.join_timeout);
  auto group = c10::make_intrusive<Group>(store, job.rank, job.world);
  group->setBackend(c10::kCPU, Group::BackendType::GLOO, make_gloo(store, job, settings));
  group->setDefaultBackend(Group::BackendType::GLOO);
  group->setGroupName("0");
  return group;
}

}  // namespace lockstep::comm
