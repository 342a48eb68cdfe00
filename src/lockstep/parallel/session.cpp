#include "lockstep/parallel/session.h"

#include <ATen/Parallel.h>

#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/comm/cuda_plugin.h"
#include "lockstep/comm/meet/join.h"
#include "lockstep/launch/cpus.h"
#include "lockstep/launch/device.h"
#include "lockstep/launch/leave.h"
#include "lockstep/launch/warnings.h"

namespace lockstep {
namespace {

c10::Device take_device(launch::Runtime& runtime, const SessionOptions& options) {
  comm::join_ranks(runtime, options.join_timeout);
  launch::DeviceChoice choice;
  comm::check_alike(runtime, [&] {
    choice = launch::choose_device(runtime.job(), options.device, launch::current_environment());
    return comm::Facts{{"the device", choice.is_cuda() ? "cuda" : "cpu"}, {"the backend", options.backend}};
  });
  comm::refuse_shared_gpus(runtime, choice.is_cuda() ? launch::gpu_uuid(choice.index) : "");
  if (!choice.is_cuda()) {
    const launch::ThreadShare share = launch::share_threads(runtime, launch::current_environment());
    launch::say_warnings(runtime, share.warnings);
    at::set_num_threads(share.threads);
    return c10::kCPU;
  }
  launch::say_warnings(runtime, {});
  comm::cuda().set_device(choice.index);
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(choice.index)};
}

}  // namespace

Session::Session(const SessionOptions& options)
    : runtime_(options.launcher, {.join_timeout = options.join_timeout, .leave_timeout = options.timeout}),
      device_(take_device(runtime_, options)),
      group_(comm::connect(
          runtime_,
          {.backend = options.backend, .join_timeout = options.join_timeout, .timeout = options.timeout},
          device_)) {}

Session::~Session() = default;

void Session::print_line(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

int run(const std::function<void()>& body) {
  ExitStatus status = kFailed;
  std::string text;
  try {
    body();
    return kDone;
  } catch (const std::exception& error) {
    status = exit_status(error);
    text = describe(error);
  }
  return launch::leave_failed(status, text);
}

}  // namespace lockstep
