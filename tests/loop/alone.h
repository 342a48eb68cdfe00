#pragma once
// A run of one process in a folder of a test's own, for the parts of a trainer.

#include <memory>

#include "lockstep/base/files/file.h"
#include "lockstep/parallel/mesh.h"
#include "temp_folder.h"
#include "trainer/loop/run_log.h"
#include "trainer/run_folder/folder.h"
#include "trainer/run_folder/status.h"
#include "trainer/step/feed.h"

namespace lockstep::test {

struct Alone {
  Alone() {
    settings.run = {.name = "alone", .dir = scratch.path().string(), .seed = 0};
    attempt.folder = std::make_shared<run_folder::HeldFolder>(run_folder::new_run(settings));
  }
  std::filesystem::path folder() const { return scratch.path() / "alone"; }
  run_folder::RunStatus status() const { return run_folder::read_status(folder()); }

  TempFolder scratch;
  Settings settings;
  Team team{{}, nullptr, at::kCPU};
  Mesh mesh{team};
  train::RunAttempt attempt;
};

/// For a learner that is given its batches by hand.
class NoSource : public train::SampleSource {
 public:
  int64_t samples() const override { return 0; }
  train::Feed feed(const Settings& settings) const override {
    return {settings, std::shared_ptr<const Dataset>(), 0, 1, at::kCPU};
  }
  std::string description() const override { return ""; }
  bool is_shared() const override { return true; }
};

}  // namespace lockstep::test
