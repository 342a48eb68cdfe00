#include "lockstep/parallel/session.h"

#include <ATen/Parallel.h>
#include <c10/util/Logging.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/comm/cuda_plugin.h"
#include "lockstep/comm/rendezvous/join.h"
#include "lockstep/launch/device.h"
#include "lockstep/launch/process/cpus.h"
#include "lockstep/launch/process/leave.h"
#include "lockstep/launch/process/report.h"
#include "lockstep/launch/process/runtime.h"
#include "lockstep/launch/variables.h"

namespace lockstep {
namespace {

// A process joins its job once: names and ports are used up then, and MPI cannot start again.
class SingleSession {
 public:
  SingleSession() {
    check();
    is_open = true;
  }
  ~SingleSession() { is_open = false; }
  SingleSession(SingleSession&&) = delete;

  static void check() {
    if (!is_open && !was_joined) return;
    throw Error(is_open ? "this process has a Session already" : "this process has left its job",
                "creating a Session", "create one Session at the start of main, and pass it on");
  }
  void joined(int world) { was_joined = world > 1; }

 private:
  static inline bool is_open = false, was_joined = false;
};

// libtorch logs its warnings on every rank; as in our own log, other ranks log only errors.
void silence_other_ranks(const Job& job) {
  const bool chosen = std::getenv("TORCH_CPP_LOG_LEVEL") != nullptr;
  if (job.rank != 0 && !chosen) FLAGS_caffe2_log_level = std::max(FLAGS_caffe2_log_level, c10::GLOG_ERROR);
}

// LOCKSTEP_TIMEOUT=8: to shorten the timeout of a program that you cannot change
LaunchOptions with_own_timeout(LaunchOptions options) {
  const auto seconds = launch::number_of(launch::current_environment(), "LOCKSTEP_TIMEOUT");
  if (seconds)
    options.timeout = std::min<std::chrono::milliseconds>(options.timeout, std::chrono::seconds(*seconds));
  return options;
}

std::unique_ptr<launch::Runtime> make_runtime(const LaunchOptions& options) {
  SingleSession::check();
  return std::make_unique<launch::Runtime>(
      options.launcher,
      launch::RuntimeOptions{.join_timeout = options.join_timeout, .leave_timeout = options.timeout});
}

parallel::SessionSetup setup_of(const LaunchOptions& options, std::vector<int64_t> gpus) {
  const auto facts = [backend = options.backend](const launch::DeviceChoice& device) {
    return comm::Facts{{"the device", device.is_cuda() ? "cuda" : "cpu"}, {"the backend", backend}};
  };
  return {.options = options, .gpus = std::move(gpus), .facts = facts};
}

// Before any use of libtorch. All ranks choose, and compare what they chose.
launch::DeviceChoice choose_device(const launch::Runtime& runtime, const parallel::SessionSetup& setup) {
  launch::DeviceChoice device;
  auto options = setup.options;
  if (!setup.grouped) options.backend = options.allreduce = "auto";  // nothing is summed
  if (comm::backend_for(runtime, options, /*on_gpu=*/true) == "nccl") options.backend = "auto";
  comm::agree(runtime, [&] {
    device = launch::choose_device(runtime.job(), options, launch::current_environment(), setup.gpus);
    return setup.facts(device);
  });
  std::vector<launch::GpuIdentity> gpus;
  for (const int gpu : device.all) gpus.push_back(launch::identify_gpu(gpu));
  if (!launch::is_staged(options)) comm::refuse_shared_gpus(runtime, gpus);
  return device;
}

int take_threads(const launch::Runtime& runtime, const launch::DeviceChoice& device, int asked) {
  auto share = launch::share_threads(runtime, launch::current_environment());
  if (asked > 0) share = {asked, "asked for", {}};
  if (!device.warning.empty()) share.warnings.push_back(device.warning);
  launch::log_warnings(runtime, share.warnings);
  return share.threads;
}

// Loads the CUDA plug-in before any other call of libtorch.
void prepare_torch(const launch::DeviceChoice& device, int threads) {
  if (device.is_cuda()) comm::cuda().set_device(device.index);
  at::set_num_threads(threads);
}

// A rank's tensors are on one GPU, or on several.
comm::Spread spread_of(const launch::OwnGpus& gpus) {
  return std::set(gpus.begin(), gpus.end()).size() > 1 ? comm::Spread::several : comm::Spread::one;
}

Team gather_team(launch::Runtime& runtime, const parallel::SessionSetup& setup, c10::Device device) {
  ProcessGroup group;
  if (setup.grouped) group = comm::connect(runtime, setup.options, device, spread_of(setup.gpus));
  return {runtime.job(), std::move(group), device};
}

}  // namespace

struct Session::State {
  State(std::unique_ptr<launch::Runtime> joined, const parallel::SessionSetup& setup)
      : options(setup.options), spread(spread_of(setup.gpus)), runtime(std::move(joined)) {
    only_one.joined(runtime->job().world);
    launch::exit_on_uncaught_errors();
    comm::join_ranks(*runtime, setup.options.join_timeout);
    silence_other_ranks(runtime->job());
    const auto device = choose_device(*runtime, setup);
    threads = take_threads(*runtime, device, setup.threads);
    prepare_torch(device, threads);
    team = std::make_unique<Team>(gather_team(*runtime, setup, c10::Device(device.name)));
  }

  SingleSession only_one;
  const int exceptions_at_birth = std::uncaught_exceptions();
  const LaunchOptions options;
  const comm::Spread spread;
  std::unique_ptr<launch::Runtime> runtime;  // outlives the group: MPI does
  int threads = 1;
  std::unique_ptr<Team> team;
};

Session::Session(const LaunchOptions& options, std::vector<int64_t> gpus)
    : Session(make_runtime(with_own_timeout(options)), setup_of(with_own_timeout(options), std::move(gpus))) {
}

Session::Session(std::unique_ptr<launch::Runtime> runtime, const parallel::SessionSetup& setup)
    : state_(std::make_unique<State>(std::move(runtime), setup)) {}

// After an exception this rank reports the cause, even if another rank notices first that it has left. An
// NCCL group is leaked: to end it may take as long as a collective's timeout, before the cause is printed.
Session::~Session() {
  try {
    if (std::uncaught_exceptions() <= state_->exceptions_at_birth) return;
    launch::claim_error_report();
    if (device().is_cuda()) static_cast<void>(new ProcessGroup(group()));
  } catch (const std::exception&) {  // out of memory, for example: then the first rank to notice reports it
  }
}

int Session::threads() const {
  return state_->threads;
}
const Team& Session::team() const {
  return *state_->team;
}

Team Session::split(int part, const std::string& name) const {
  const auto& all = team();
  if (all.world() == 1) return all;
  const auto& [options, spread, runtime] = std::tie(state_->options, state_->spread, *state_->runtime);
  return {all.job(), comm::split(runtime, options, all.device(), all.group(), part, name, spread),
          all.device()};
}

double Session::all_reduce(const Mean& mean) const {
  const auto [sum, count] = mean.total();
  std::vector<double> totals{sum, count};
  team().sum(totals);
  return totals[0] / totals[1];
}

void Session::all_reduce(const at::Tensor& tensor) const {
  std::vector<at::Tensor> tensors{tensor};
  if (world() > 1) group()->allreduce(tensors)->wait();
}

void Session::print_line(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

int run(const std::function<void()>& body) {
  ExitStatus status = kFailed;
  std::string text = "an exception was thrown that is not a std::exception";
  try {
    body();
    return kDone;
  } catch (const std::exception& error) {
    status = exit_status(error);
    text = launch::report_of(error);
    launch::note_fault(error);
  } catch (...) {  // so that no other rank waits for this one
  }
  return launch::leave_failed(status, text);
}

}  // namespace lockstep
