// A rank for the process-level tests: joins the job and sums until it is told, or made, to stop.
//   comm_peer BACKEND[:ALGORITHM] TIMEOUT_MS JOIN_MS STEPS [PAUSE_MS]
// Prints "ready RANK PID" once the group works, "listening ADDRESS" for each socket it listens on, "done
// RANK" at the end; an error goes to stderr with the seconds since the last good sum, and the exit status is
// its own. LEAVES_WORD=1: tells of an error as NCCL's group would, "found RANK" where there is such a word
// already, and fails.
#include <ATen/ATen.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "comm/ranks/shared_buffer.h"

#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/comm/cuda_load.h"
#include "lockstep/comm/rendezvous/store.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

std::set<std::string> own_sockets() {
  std::set<std::string> inodes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.rfind("socket:[", 0) == 0) inodes.insert(target.substr(8, target.size() - 9));
  }
  return inodes;
}

// PeerConnections of /proc/net/tcp: number, local address, remote address, state (0A: listening), ..., inode
// in field 10.
void print_listeners(const std::string& table, const std::set<std::string>& inodes) {
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::vector<std::string> fields(10);
    for (auto& field : fields) words >> field;
    if (fields[3] == "0A" && inodes.count(fields[9])) std::printf("listening %s\n", fields[1].c_str());
  }
}

// Loads the CUDA plug-in before anything else uses libtorch.
c10::Device device_for(const std::string& backend, const Job& job) {
  if (backend != "nccl") return c10::kCPU;
  const int seen = std::max(1, comm::cuda_device_count());  // two ranks may share one, where NCCL lets them
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(job.local_rank % seen)};
}

void sum_once(ProcessGroup& group, const at::Tensor& ones) {
  std::vector<at::Tensor> tensors = {ones.fill_(1)};
  group->allreduce(tensors)->wait();
  if (!ones.eq(group->getSize()).all().item<bool>()) throw Error("the sum is wrong");
}

// In the store that ProcessGroupNCCL takes for the job's: the one beneath all prefixes.
void leave_word(const ProcessGroup& group, const comm::StorePtr& store, int rank) {
  const auto below = c10::make_intrusive<c10d::PrefixStore>("cuda", store);
  const auto jobs = below->getUnderlyingNonPrefixStore();
  if (jobs->check({"exception_dump"})) std::printf("found %d\n", rank);
  std::fflush(stdout);
  group->barrier()->wait();
  jobs->set("exception_dump", std::to_string(rank));
  throw Error("as asked");
}

int run(char** args, Clock::time_point& last_good) {
  launch::Runtime runtime;
  LaunchOptions settings;
  settings.backend = args[1];
  if (const auto at = settings.backend.find(':'); at != std::string::npos) {
    settings.allreduce = settings.backend.substr(at + 1);
    settings.backend.resize(at);
  }
  settings.timeout = Milliseconds(std::atoi(args[2]));
  settings.join_timeout = Milliseconds(std::atoi(args[3]));
  const Milliseconds pause(args[5] ? std::atoi(args[5]) : 0);
  const c10::Device device = device_for(settings.backend, runtime.job());
  auto group = comm::connect(runtime, settings, device);
  // as DDP has them: small things, and gradients where the ranks share memory if they can
  const at::Tensor few = at::ones({1000}, device), gradients = test::shared_buffer(group, device, {100'000});
  sum_once(group, few);
  if (std::getenv("LEAVES_WORD"))
    leave_word(group, comm::open_store(runtime, settings.join_timeout), runtime.job().rank);
  const auto sockets = own_sockets();
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) print_listeners(table, sockets);
  std::printf("ready %d %d\n", runtime.job().rank, ::getpid());
  std::fflush(stdout);
  for (int step = 0; step < std::atoi(args[4]); ++step) {
    last_good = Clock::now();
    std::this_thread::sleep_for(pause);
    sum_once(group, few);
    sum_once(group, gradients);
  }
  group->barrier()->wait();
  std::printf("done %d\n", runtime.job().rank);
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  auto last_good = lockstep::Clock::now();
  try {
    return lockstep::run(argv, last_good);
  } catch (const std::exception& error) {
    const std::chrono::duration<double> waited = lockstep::Clock::now() - last_good;
    std::fprintf(stderr, "%s\nafter %.2f s\n", lockstep::describe(error).c_str(), waited.count());
    const auto* known = dynamic_cast<const lockstep::Error*>(&error);
    std::fflush(nullptr);
    ::_exit(known ? known->exit_status() : 1);  // MPI would wait for ranks that never come
  }
}
