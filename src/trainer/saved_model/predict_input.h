#pragma once
// What is to be predicted from: a file of new samples, or what stands on standard input.

#include <memory>
#include <optional>
#include <string>

#include "lockstep/base/files/temporary_folder.h"
#include "lockstep/data/dataset.h"
#include "lockstep/parallel/team.h"
#include "trainer/setup/setup.h"

namespace lockstep::train {

/// The file that --input names. For "-" one of this rank's own, which holds what rank 0 was given.
class PredictInput {
 public:
  /// Collective.
  PredictInput(const Team& team, const std::string& asked);
  /// The task's samples of it. An error names standard input by its name.
  std::shared_ptr<const Dataset> read(const Setup& setup) const;

 private:
  std::string path_;
  std::optional<base::TemporaryFolder> folder_;
};

}  // namespace lockstep::train
