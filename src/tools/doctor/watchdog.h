#pragma once
// Bounds the doctor's time: what hangs is named, what was found is told, and the process leaves.

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/launch/process/alarm.h"

namespace lockstep::doctor {

class Watchdog {
 public:
  /// What it does, once, with the name of the stage that hung: to print and leave.
  using GiveUp = std::function<void(const std::string& stage, std::chrono::milliseconds limit)>;
  Watchdog(std::chrono::milliseconds limit, GiveUp give_up);

  /// From now on this is what would have hung. The name must live on.
  void now(const char* stage) { stage_ = stage; }
  const char* stage_now() const { return stage_; }
  /// A stage with a bound of its own, until the result is gone.
  std::unique_ptr<launch::Alarm> stage(const char* name, std::chrono::milliseconds limit);

 private:
  void bite(std::chrono::milliseconds limit);

  GiveUp give_up_;
  std::atomic<const char*> stage_ = "the start";
  std::atomic<bool> bitten_ = false;
  launch::Alarm overall_;  // last: it may ring at once
};

}  // namespace lockstep::doctor
