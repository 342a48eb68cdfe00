#include "lockstep/doctor/checks.h"

namespace lockstep::doctor {
namespace {

constexpr Check kChecks[] = {
    {"launcher", judge_launcher},
};

}  // namespace

std::span<const Check> checks() {
  return kChecks;
}

Findings judge(const Check& check, const Picture& picture) {
  Findings findings;
  try {
    findings = check.judge(picture);
  } catch (const std::exception& error) {
    findings = {
        fail(std::string("the check itself failed: ") + error.what(), "please report this as a defect")};
  }
  for (Finding& finding : findings) finding.check = check.name;
  return findings;
}

}  // namespace lockstep::doctor
