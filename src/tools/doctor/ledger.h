#pragma once
// What has been found so far, and what is being looked at now: the watchdog tells both when time is over.

#include <functional>
#include <mutex>
#include <string>

#include "tools/doctor/node/finding.h"

namespace lockstep::doctor {

class Ledger {
 public:
  /// `on_finding` gets each finding as it comes.
  explicit Ledger(std::function<void(const Finding&)> on_finding = {}) : on_finding_(std::move(on_finding)) {}

  void add(Finding finding);
  void add(const char* check, Findings findings);
  /// What is added from now on is too late, and is neither told nor kept.
  void close();
  Findings all() const;
  /// Places that findings name and a report for others must not.
  void hide(const std::vector<std::string>& paths);
  std::vector<std::string> hidden() const;
  /// The worst of all.
  FindingLevel verdict() const;

 private:
  mutable std::mutex mutex_;
  std::function<void(const Finding&)> on_finding_;
  bool closed_ = false;
  Findings findings_;
  std::vector<std::string> hidden_;
};

}  // namespace lockstep::doctor
