#include "lockstep/launch/process/doctor_hint.h"

namespace lockstep::launch {
namespace {

constexpr DoctorHint kHints[] = {
    {"not every rank arrived in MPI_Init", "meeting"},
    {"did not come to join the group", "meeting"},
    {"came to join the group within", "meeting"},
    {"rank 0 did not come within", "meeting"},
    {"nobody answered at", "meeting"},
    {"answers at", "meeting"},
    {"have no way to meet", "meeting"},
    {"started alone (rank 0 of 1)", "launcher"},
    {"but MPI says", "launcher"},
    {"MPI says rank 0 of 1", "launcher"},
    {": half of what", "launcher"},
    {"no variable says how many ranks there are", "launcher"},
    {"share one GPU", "gpus"},
    {"too few GPUs", "gpus"},
    {"sees no GPU", "gpus"},
    {"the CUDA half does not load", "gpus"},
    {"lockstep's version is", "versions"},
    {"cannot make shared memory", "shm"},
    {"a process may open", "limits"},
    {"there is not enough memory", "memory"},
    {"and there is no such interface", "interfaces"},
    {"the loopback, which ranks on other nodes cannot reach", "interfaces"},
    {"which is no address of this machine", "interfaces"},
    {"gloo would listen on the loopback alone", "interfaces"},
    {"NCCL did not connect", "nccl"},
};

}  // namespace

std::span<const DoctorHint> doctor_hints() {
  return kHints;
}

std::string with_doctor(const std::string& text) {
  const std::string message = text.substr(0, text.find('\n'));
  for (const DoctorHint& hint : kHints) {
    if (message.find(hint.words) == std::string::npos) continue;
    return text + "\n  or ask: lockstep doctor, started the same way (its check: " + hint.check + ")";
  }
  return text;
}

}  // namespace lockstep::launch
