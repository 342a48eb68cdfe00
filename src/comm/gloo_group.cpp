#include "comm/gloo_group.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>

#include "comm/interface.h"

namespace lockstep::comm {
namespace {

using c10d::ProcessGroupGloo;

c10::intrusive_ptr<ProcessGroupGloo::Options> options_for(const Job& job, std::chrono::milliseconds timeout) {
  const char* wanted = std::getenv("GLOO_SOCKET_IFNAME");
  const auto interface = choose_interface(network_facts(wanted ? wanted : ""), job.nodes > 1);
  if (!interface.name.empty()) return ProcessGroupGloo::Options::create_default(timeout);
  auto options = ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(ProcessGroupGloo::createDeviceForHostname(interface.address));
  return options;
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_gloo(const StorePtr& store, const Job& job,
                                            const GroupSettings& settings) {
  // the options' timeout governs gloo's own rendezvous first, then the collectives
  auto options = options_for(job, settings.join_timeout);
  auto backend = c10::make_intrusive<ProcessGroupGloo>(store, job.rank, job.world, options);
  backend->setTimeout(settings.timeout);
  return backend;
}

}  // namespace lockstep::comm
