#include "tools/doctor/telling.h"

#include <algorithm>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "tools/doctor/anonymous.h"
#include "tools/doctor/config_names.h"
#include "tools/doctor/node/checks.h"
#include "tools/doctor/print.h"

namespace lockstep::doctor {
namespace {

void say(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

Telling::Telling(const DoctorSettings& settings) : settings_(settings) {}

void Telling::know(Picture picture) {
  world_ = picture.world();
  const std::lock_guard lock(mutex_);
  picture_ = std::move(picture);
}

Picture Telling::picture() const {
  const std::lock_guard lock(mutex_);
  return picture_;
}

void Telling::failed_early(const char* check, const Finding& finding) {
  const std::lock_guard lock(mutex_);
  early_.push_back(finding);
  early_.back().check = check;
}

void Telling::facts() {
  if (facts_told_.exchange(true)) return;  // or begun: who hangs in it is not to be followed
  const auto picture = this->picture();
  if (picture.ranks.empty()) return;
  if (!settings_.json) say(heading(picture.ranks.front().job));
  Findings early;
  {
    const std::lock_guard lock(mutex_);
    early = early_;
  }
  for (const Finding& finding : early) ledger_.add(finding);
  for (const Check& check : checks()) {
    const bool known = std::any_of(early.begin(), early.end(),
                                   [&](const Finding& finding) { return finding.check == check.name; });
    if (known) continue;
    for (Finding& finding : judge(check, picture)) ledger_.add(std::move(finding));
  }
}

void Telling::everything() {
  for (const Finding& finding : ledger_.all()) show(finding);
}

void Telling::conclude() {
  const std::lock_guard lock(concluding_);
  if (concluded_) return;
  concluded_ = true;
  ledger_.close();
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begun_;
  const std::string json = as_json(ledger_.all(), picture(), passed.count());
  say(settings_.json ? json : summary(ledger_.all(), passed.count()));
  if (!settings_.report.empty()) write_report(json);
}

void Telling::write_report(const std::string& json) {
  try {
    auto secrets = secrets_of(picture(), settings_.environment);
    for (const auto& path : ledger_.hidden()) secrets["path"].push_back(path);
    hide_config(secrets, settings_.config);
    report_file_.emplace(settings_.report, heard ? -1 : rank.load());
    base::write_output(report_file_->path(), anonymous(json, secrets), kReportHint);
    if (report_file_->path() != settings_.report)
      log::error(format("this process's report is in {}: another one has {}", report_file_->path(),
                        settings_.report));
  } catch (const std::exception& error) {
    log::error(describe(error));  // also from the watchdog's thread
    report_failed_ = true;
  }
}

std::string Telling::heading(const Job& job) const {
  return format("{}{} rank{} on {} node{}, launcher {}\n", tag(job.world), job.world,
                job.world == 1 ? "" : "s", job.nodes, job.nodes == 1 ? "" : "s", job.launcher);
}

// a rank that speaks for itself alone says which it is
std::string Telling::tag(int world) const {
  return heard || world == 1 ? "" : format("[rank {}] ", rank.load());
}

void Telling::show(const Finding& finding) {
  if (!settings_.json && speaks()) say(as_text(finding, tag(world_)));
}

}  // namespace lockstep::doctor
