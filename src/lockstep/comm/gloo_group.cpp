#include "lockstep/comm/gloo_group.h"

#include <iostream>
#include <mutex>
#include <sstream>

#include "lockstep/comm/meet/network.h"
#include "lockstep/comm/watched_gloo.h"

namespace lockstep::comm {
namespace {

using c10d::ProcessGroupGloo;

c10::intrusive_ptr<ProcessGroupGloo::Options> options_for(const Job& job, std::chrono::milliseconds timeout) {
  const auto interface = own_interface(job.nodes > 1);
  auto options = ProcessGroupGloo::Options::create(timeout);
  std::istringstream names(interface.name);
  for (std::string name; std::getline(names, name, ',');)
    options->devices.push_back(ProcessGroupGloo::createDeviceForInterface(name));
  if (interface.name.empty())
    options->devices.push_back(ProcessGroupGloo::createDeviceForHostname(interface.address));
  options->threads = static_cast<int>(options->devices.size()) * 2;  // as Python's init_process_group
  return options;
}

// Some versions of gloo say on standard output whom they reached (libtorch 2.9 and 2.10), where a program's
// results stand: it goes to standard error meanwhile.
class OutputAside {
 public:
  OutputAside() {
    const std::lock_guard guard(mutex);
    if (count++ == 0) own = std::cout.rdbuf(std::cerr.rdbuf());
  }
  ~OutputAside() {
    const std::lock_guard guard(mutex);
    if (--count == 0) std::cout.rdbuf(own);
  }
  OutputAside(const OutputAside&) = delete;
  OutputAside& operator=(const OutputAside&) = delete;

 private:
  static inline std::mutex mutex;
  static inline int count = 0;  // several groups may connect at once
  static inline std::streambuf* own = nullptr;
};

}  // namespace

void check_gloo_interface(const Job& job) {
  own_interface(job.nodes > 1);
}

c10::intrusive_ptr<c10d::Backend> make_gloo(const StorePtr& store, const Job& job,
                                            const LaunchOptions& settings, std::shared_ptr<RollCall> roll) {
  // the options' timeout governs gloo's own rendezvous first, then the collectives
  auto options = options_for(job, settings.join_timeout);
  try {
    const OutputAside aside;
    const Connections before = connections();
    auto backend = c10::make_intrusive<WatchedGloo>(store, job.rank, job.world, options, roll);
    backend->keep_time(settings.timeout, since(before, connections()));
    return backend;
  } catch (const std::exception& error) {
    std::rethrow_exception(
        roll->diagnose({"connecting gloo", 0, settings.join_timeout}, error.what(), false));
  }
}

}  // namespace lockstep::comm
