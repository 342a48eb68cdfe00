#include "tools/doctor/ledger.h"

#include <algorithm>

namespace lockstep::doctor {

const char* name_of(FindingLevel verdict) {
  static constexpr const char* names[] = {"ok", "warning", "failure"};
  return names[static_cast<size_t>(verdict)];
}

void Ledger::add(Finding finding) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  if (on_finding_) on_finding_(finding);
  findings_.push_back(std::move(finding));
}

void Ledger::add(const char* check, Findings findings) {
  for (Finding& finding : findings) {
    finding.check = check;
    add(std::move(finding));
  }
}

void Ledger::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

Findings Ledger::all() const {
  const std::lock_guard lock(mutex_);
  return findings_;
}

void Ledger::hide(const std::vector<std::string>& paths) {
  const std::lock_guard lock(mutex_);
  hidden_.insert(hidden_.end(), paths.begin(), paths.end());
}

std::vector<std::string> Ledger::hidden() const {
  const std::lock_guard lock(mutex_);
  return hidden_;
}

FindingLevel Ledger::verdict() const {
  FindingLevel worst = FindingLevel::ok;
  for (const Finding& finding : all()) worst = std::max(worst, finding.verdict);
  return worst;
}

}  // namespace lockstep::doctor
