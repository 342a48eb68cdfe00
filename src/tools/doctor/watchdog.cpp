#include "tools/doctor/watchdog.h"

namespace lockstep::doctor {

Watchdog::Watchdog(std::chrono::milliseconds limit, GiveUp give_up)
    : give_up_(std::move(give_up)), overall_(limit, [this, limit] { bite(limit); }) {}

void Watchdog::bite(std::chrono::milliseconds limit) {
  if (!bitten_.exchange(true)) give_up_(stage_.load(), limit);
}

std::unique_ptr<launch::Alarm> Watchdog::stage(const char* name, std::chrono::milliseconds limit) {
  now(name);
  return std::make_unique<launch::Alarm>(limit, [this, limit] { bite(limit); });
}

}  // namespace lockstep::doctor
