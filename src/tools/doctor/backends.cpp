// The checks of the backends: each opens a group, sums tensors whose sum is known beforehand, and is timed.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>

#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/program.h"
#include "lockstep/comm/connect.h"
#include "lockstep/comm/cuda_load.h"
#include "lockstep/comm/mpi/comms.h"
#include "tools/bench/measure.h"
#include "tools/doctor/session.h"

namespace lockstep::doctor {
namespace {

using namespace std::chrono_literals;
using Milliseconds = std::chrono::milliseconds;
using Json = Session::Json;

constexpr Milliseconds kOpen{6000}, kOpenOfRank{100}, kLongestOpen{12'000};
constexpr auto kSum = 6s;  // for one collective
constexpr int64_t kSmall = 1 << 10, kMiddle = 1 << 20, kLarge = 16 << 20;
constexpr int kSmallRounds = 10, kRounds = 5;
constexpr double kLongest = 0.02;    // seconds for a MiB: if it takes longer, 16 MiB are not tried
constexpr double kEthernet = 125e6;  // bytes a second: 1 Gbit/s

// One backend: opened, checked and timed on every rank. A stage that fails on some ranks ends it on all.
class BackendTest {
 public:
  BackendTest(Session& session, const std::string& backend, at::Device device = at::kCPU)
      : session_(session), device_(device) {
    const auto timeout = std::min<Milliseconds>(kOpen + kOpenOfRank * session_.job().world, kLongestOpen);
    session_.round([&]() -> Json {
      group_ = comm::connect(session_.runtime, {.backend = backend, .join_timeout = timeout, .timeout = kSum},
                             device_);
      return {};
    });
  }

  void measure(Findings& findings) {
    const double small = slowest_sum(kSmall, kSmallRounds);
    double large = slowest_sum(kMiddle, kRounds);
    const int64_t bytes = large <= kLongest ? kLarge : kMiddle;
    if (bytes == kLarge) large = slowest_sum(kLarge, kRounds);
    const auto& job = session_.job();
    const double speed = bus_bandwidth(bytes, large, job.world);
    findings.push_back(
        ok(format("{} ranks, sums right; 1 KiB in {}, {} MiB in {}, bus bandwidth {:.0f} MB/s", job.world,
                  report::seconds_text(small), bytes >> 20, report::seconds_text(large), speed / 1e6)));
    if (job.nodes > 1 && speed < kEthernet)
      findings.push_back(warning(format("slow between nodes: {:.0f} MB/s", speed / 1e6),
                                 "set GLOO_SOCKET_IFNAME (or MPI's own variable) to a faster network: this "
                                 "is 1 Gbit/s Ethernet or slower"));
  }

  std::string opened() const { return group_->getBackend(device_.type())->getBackendName(); }

 private:
  double slowest_sum(int64_t bytes, int rounds) {
    const auto sum = [&]() -> Json {
      return bench::measured(Team(session_.job(), group_, device_),
                             {bench::through(opened(), group_, device_)}, bytes, rounds,
                             [] {})[0];  // the check of each sum ends on all ranks at once
    };
    return session_.round(sum, [](const std::vector<Json>& seconds) { return seconds[0]; }).get<double>();
  }

  Session& session_;
  at::Device device_;
  ProcessGroup group_;
};

// Whether there is something to measure; otherwise adds the reason.
bool can_measure(Session& session, const std::string& problem, Findings& findings) {
  if (session.job().world == 1)
    findings.push_back(ok("one rank has nothing to exchange"));
  else if (!problem.empty())
    findings.push_back(failure("not tried: " + problem, "see the checks \"interfaces\" and \"reach\" above"));
  return findings.empty();
}

// Whether every rank has a GPU; otherwise adds why not.
bool all_have_gpus(Session& session, Findings& findings) {
  const auto own = [&]() -> Json {
    if (!session.own.device_error.empty()) return session.own.device_error;
    try {
      if (session.own.gpu < 0) return "no GPU here";
      comm::load_cuda();
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  };
  return session.round(own, [&](const std::vector<Json>& values) -> Json {
    std::vector<std::pair<int, Finding>> missing;
    for (size_t rank = 0; rank < values.size(); ++rank)
      if (values[rank] != "")
        missing.emplace_back(
            rank, failure("not tried: " + values[rank].get<std::string>(),
                          "ask the scheduler for a GPU for every rank, or set launch.device to cpu"));
    for (const Finding& finding : of_ranks(missing, values.size()))
      findings.push_back(missing.size() == values.size() ? ok(finding.says) : finding);
    return missing.empty();
  });
}

// The devices of InfiniBand and Slingshot.
std::vector<std::string> fabric_here() {
  std::vector<std::string> found;
  for (const char* folder : {"/sys/class/infiniband", "/sys/class/cxi"}) {
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator(folder, failed))
      found.push_back(entry.path().filename().string());
  }
  std::ranges::sort(found);
  return found;
}

std::string after(const std::string& line, const std::string& mark) {
  const auto at = line.find(mark);
  return at == std::string::npos ? "" : base::trimmed(line.substr(at + mark.size()));
}

}  // namespace

double bus_bandwidth(int64_t bytes, double seconds, int world) {
  return 2.0 * (world - 1) / world * static_cast<double>(bytes) / seconds;
}

Finding nccl_finding(const std::string& log, const std::vector<std::string>& fabric, int nodes) {
  std::string network;               // "Socket", "IB", "AWS Libfabric"
  std::set<std::string> transports;  // "P2P/CUMEM", "NET/Socket/0"
  for (const auto& line : base::split(log, '\n')) {
    if (const auto name = after(line, "Using network "); !name.empty()) network = name;
    if (line.find("Channel ") != std::string::npos) transports.insert(after(line, " via "));
  }
  transports.erase("");
  const auto channels = base::join({transports.begin(), transports.end()}, ", ");
  const auto known = [](const std::string& text) { return text.empty() ? "not reported" : text; };
  const auto what = format("network {}, channels {}", known(network), known(channels));
  const bool uses_sockets = network.starts_with("Socket") || channels.find("NET/Socket") != std::string::npos;
  if (nodes < 2 || !uses_sockets || fabric.empty()) return ok(what);
  return warning(format("{}: it uses sockets, and this node has {}", what, base::join(fabric, ", ")),
                 "load the site's NCCL plug-in (aws-ofi-nccl for Slingshot and EFA), check that libibverbs "
                 "and /dev/infiniband exist (also in a container), and unset NCCL_IB_DISABLE and NCCL_NET");
}

// What `auto` uses.
void measure_shared(Session& session, Findings& findings) {
  if (!can_measure(session, session.gloo_problem, findings)) return;
  BackendTest test(session, "shared");
  if (test.opened() == "shared") return test.measure(findings);
  findings.push_back(session.job().nodes == 1
                         ? warning("the ranks cannot share memory, so training on CPUs uses gloo",
                                   "see the check \"shm\" above: make /dev/shm larger, and share it")
                         : ok("training on CPUs uses gloo here"));
}

void measure_gloo(Session& session, Findings& findings) {
  if (!can_measure(session, session.gloo_problem, findings)) return;
  BackendTest(session, "gloo").measure(findings);
}

void measure_mpi(Session& session, Findings& findings) {
  if (!session.runtime.has_mpi()) return findings.push_back(ok("not tried: MPI did not start the ranks"));
  if (!can_measure(session, "", findings)) return;
  session.round([]() -> Json {
    comm::require_threads();
    return {};
  });
  BackendTest(session, "mpi").measure(findings);
}

// The last measurement, so it may set NCCL's log for the rest of this process.
void measure_nccl(Session& session, Findings& findings) {
  if (!all_have_gpus(session, findings) || !can_measure(session, session.gloo_problem, findings)) return;
  const base::TemporaryFolder folder;
  const auto log = folder.path() + "/nccl.log";
  ::setenv("NCCL_DEBUG", "INFO", 1);
  ::setenv("NCCL_DEBUG_FILE", log.c_str(), 1);
  ::unsetenv("NCCL_DEBUG_SUBSYS");
  const auto report = [&] {
    std::ostringstream text;
    text << std::ifstream(log).rdbuf();
    findings.push_back(nccl_finding(text.str(), fabric_here(), session.job().nodes));
  };
  try {
    BackendTest(session, "nccl", at::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(session.own.gpu)))
        .measure(findings);
  } catch (const RoundFailed&) {
    report();
    throw;
  }
  report();
}

}  // namespace lockstep::doctor
