#pragma once
// What the environment asks of the pretended NCCL, read once.
#include <string>

namespace lab::nccl {

/// What the others see of a peer whose process is gone: nothing, as NCCL over shared memory; an error; or an
/// error where the peer was on another host, as NCCL over a network.
enum class Death { hang, error, network };
/// What goes wrong in a collective.
enum class Fault { none, hang, error, async, kill };

struct Settings {
  Death death = Death::hang;
  Fault fault = Fault::none;
  long fault_at = 0;                    // the process' n-th collective, from 1 on
  bool abort_hangs = false;             // ncclCommAbort never returns
  bool mismatch_is_error = false;       // else a hang
  bool devices_may_be_shared = false;   // by several ranks
  bool sends_wait_for_receipt = false;  // else a send of up to a piece ends without its receiver
  bool trace = false;
  bool warns = false;  // NCCL_DEBUG: each refusal is printed
};
const Settings& settings();

/// By which ranks are told to be on one host: NCCL_HOSTID, LAB_NODE, or the host's name.
std::string host_identity();

}  // namespace lab::nccl
