#include "lockstep/doctor/active.h"

namespace lockstep::doctor {

namespace {

using std::chrono::seconds;

constexpr ActiveCheck kActive[] = {
    {"deadline", seconds(20), run_deadline},
};

}  // namespace

// To add one: `Findings run_NAME(const Bench&)` in a file of its own, declared in active.h, and its row here.
std::span<const ActiveCheck> active_checks() {
  return kActive;
}

}  // namespace lockstep::doctor
