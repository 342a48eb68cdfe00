#pragma once
// A run of one process in a folder of a test's own, for the parts of a trainer.

#include <memory>

#include "lockstep/base/file.h"
#include "lockstep/parallel/mesh.h"
#include "lockstep/run_folder/folder.h"
#include "lockstep/run_folder/held_folder.h"
#include "lockstep/run_folder/request.h"
#include "lockstep/run_folder/status.h"
#include "lockstep/train/run_log.h"
#include "temp_folder.h"

namespace lockstep::test {

struct Alone {
  Alone() {
    settings.run = {.name = "alone", .dir = scratch.path().string(), .seed = 0};
    attempt.folder = std::make_shared<run_folder::HeldFolder>(
        run_folder::open_run_folder(settings, ""), [this](const std::filesystem::path& removed) {
          return run_folder::open_successor(settings, removed);
        });
  }
  std::filesystem::path folder() const { return scratch.path() / "alone"; }
  run_folder::RunStatus status() const { return run_folder::read_status(folder()); }

  TempFolder scratch;
  Settings settings;
  Team team{{}, nullptr, at::kCPU};
  Mesh mesh{team};
  train::Attempt attempt;
};

}  // namespace lockstep::test
