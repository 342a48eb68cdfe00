#include "context.h"

#include <atomic>

#include "../lab.h"
#include "devices.h"
#include "lifetime.h"
#include "settings.h"

namespace pretended {
namespace {

thread_local int current = 0;
thread_local cudaError_t last_error = cudaSuccess;
std::atomic<bool> active[kMaxDevices];
std::atomic<int> failures[kMaxDevices];

cudaError_t asked_failure() {
  const char* wanted = text("LAB_FAIL_ERROR");
  const std::string name = wanted ? wanted : "launch";
  if (name == "ecc") return cudaErrorECCUncorrectable;
  if (name != "launch") lab::say("LAB_FAIL_ERROR is launch or ecc, not %s", name.c_str());
  return cudaErrorLaunchFailure;
}

}  // namespace

int this_device() {
  return current;
}

void set_this_device(int device) {
  current = device;
}

bool is_active(int device) {
  return active[device];
}

void activate(int device) {
  active[device] = true;
}

cudaError_t give(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

cudaError_t state_of(int device) {
  if (const int error = use()) return static_cast<cudaError_t>(error);
  return static_cast<cudaError_t>(failures[device].load());
}

cudaError_t enter() {
  if (const auto error = state_of(current)) return error;
  activate(current);
  return cudaSuccess;
}

}  // namespace pretended

using namespace pretended;

namespace lab {

int current_device() {
  return current;
}

void fail_device(int device, cudaError_t error) {
  failures[device] = error;
}

void perhaps_fail(int device) {
  static const long after = number("LAB_FAIL_AFTER_OPS", 0);
  static const bool here = after > 0 && fails_here(/*otherwise=*/0);
  static std::atomic<long> ops{0};
  if (!here || ++ops != after) return;
  say("device %d fails, as asked", device);
  fail_device(device, asked_failure());
}

}  // namespace lab

extern "C" {

cudaError_t cudaPeekAtLastError() {
  if (last_error == cudaSuccess && failures[current] != 0) return state_of(current);
  return last_error;
}

// what stays is not forgotten
cudaError_t cudaGetLastError() {
  const auto error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}

}  // extern "C"
