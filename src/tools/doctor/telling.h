#pragma once
// What is told of an examination, each thing once: by the thread that looks, or by the one that ends it.

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>

#include "tools/doctor/ledger.h"
#include "tools/doctor/node/facts.h"
#include "tools/doctor/node/settings.h"
#include "tools/doctor/report_file.h"

namespace lockstep::doctor {

class Telling {
 public:
  explicit Telling(const DoctorSettings& settings);

  /// This rank's, as far as it is known.
  std::atomic<int> rank = 0;
  /// Whether rank 0 has heard all ranks and speaks for them; else each that may speak does so for itself.
  std::atomic<bool> heard = false;
  /// Another process of the same trouble speaks for this one.
  std::atomic<bool> silent = false;

  bool speaks() const { return !silent && (!heard || rank == 0); }
  Ledger& ledger() { return ledger_; }

  /// The ranks whose facts are known: one's own until all were heard.
  void know(Picture picture);
  Picture picture() const;
  /// Told before the facts, and in place of the check of that name.
  void failed_early(const char* check, const Finding& finding);

  /// The heading, and what the facts say.
  void facts();
  /// What was found while somebody else was to speak.
  void everything();
  /// The summary, and the report. Nothing is told after it.
  void conclude();
  bool report_failed() const { return report_failed_; }

 private:
  void show(const Finding& finding);
  void write_report(const std::string& json);
  std::string heading(const Job& job) const;
  std::string tag(int world) const;

  const DoctorSettings& settings_;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  mutable std::mutex mutex_;  // of the next two
  Picture picture_;
  Findings early_;
  std::atomic<int> world_ = 1;
  std::atomic<bool> facts_told_ = false, report_failed_ = false;
  std::mutex concluding_;
  bool concluded_ = false;
  std::optional<ReportFile> report_file_;
  Ledger ledger_{[this](const Finding& finding) { show(finding); }};
};

}  // namespace lockstep::doctor
