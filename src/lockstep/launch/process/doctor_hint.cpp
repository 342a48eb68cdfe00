#include "lockstep/launch/process/doctor_hint.h"

#include <algorithm>
#include <iterator>

namespace lockstep::launch {
namespace {

constexpr DoctorHint kHints[] = {
    {Code::not_joined, "meeting"}, {Code::launcher, "launcher"},  {Code::gpu, "gpus"},
    {Code::versions, "versions"},  {Code::shared_memory, "shm"},  {Code::open_files, "limits"},
    {Code::no_memory, "memory"},   {Code::network, "interfaces"}, {Code::nccl, "nccl"},
};

}  // namespace

std::span<const DoctorHint> doctor_hints() {
  return kHints;
}

std::string with_doctor(const std::string& text, Code code) {
  const auto* hint = std::ranges::find(kHints, code, &DoctorHint::code);
  if (hint == std::end(kHints)) return text;
  return text + "\n  or ask: lockstep doctor, started the same way (its check: " + hint->check + ")";
}

}  // namespace lockstep::launch
