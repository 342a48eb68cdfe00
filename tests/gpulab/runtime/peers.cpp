// Access from one device to another's memory. LAB_PEERS=0 has none; slices of divided GPUs never do.
#include <mutex>
#include <set>
#include <utility>

#include "../lab.h"
#include "context.h"
#include "devices.h"
#include "settings.h"

using namespace pretended;

namespace {

bool is_slice(int device) {
  return devices()[static_cast<size_t>(device)].slice >= 0;
}

bool can_reach(int device, int peer) {
  return device != peer && !is_slice(device) && !is_slice(peer) && number("LAB_PEERS", 1) != 0;
}

bool enable(int device, int peer) {
  static auto& mutex = *new std::mutex;
  static auto& enabled = *new std::set<std::pair<int, int>>;
  const std::lock_guard lock(mutex);
  return enabled.emplace(device, peer).second;
}

}  // namespace

extern "C" {

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!is_device(device) || !is_device(peer)) return give(cudaErrorInvalidDevice);
  *can = can_reach(device, peer);
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  if (const auto error = enter()) return give(error);
  if (!is_device(peer)) return give(cudaErrorInvalidDevice);
  if (!can_reach(this_device(), peer)) return give(cudaErrorPeerAccessUnsupported);
  return give(enable(this_device(), peer) ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled);
}

}  // extern "C"
