#include "tools/doctor/node/checks.h"

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "tools/doctor/node/judging.h"

namespace lockstep::doctor {
namespace {

constexpr Check kChecks[] = {
    {"launcher", judge_launcher},   {"ranks", judge_ranks},         {"versions", judge_versions},
    {"facts", judge_facts},         {"host", judge_host},           {"cores", judge_cores},
    {"threads", judge_threads},     {"locality", judge_locality},   {"gpus", judge_gpus},
    {"libtorch", judge_libtorch},   {"memory", judge_memory},       {"shm", judge_shm},
    {"limits", judge_limits},       {"container", judge_container}, {"signals", judge_signals},
    {"variables", judge_variables},
};

}  // namespace

std::span<const Check> checks() {
  return kChecks;
}

Findings judge(const Check& check, const Picture& picture) {
  Findings findings;
  try {
    findings = check.judge(picture);
  } catch (const Error& error) {  // what a rank was given is wrong: OMP_NUM_THREADS=many
    findings = {failure_of(error)};
  } catch (const std::exception& error) {
    findings = {fail(format("the doctor has no answer: {}", error.what()), "please report this as a defect")};
  }
  for (Finding& finding : findings) finding.check = check.name;
  return findings;
}

}  // namespace lockstep::doctor
