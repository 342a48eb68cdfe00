#pragma once
// A run's trace from its first step to its file: the clocks compared at both ends, the ranks' spans gathered.

#include <memory>
#include <optional>
#include <vector>

#include "lockstep/parallel/team.h"
#include "trainer/config/settings.h"
#include "trainer/observe/trace_file.h"
#include "trainer/run_folder/held_folder.h"

namespace lockstep::train {

/// None where train.trace is 0.
std::shared_ptr<Tracer> make_tracer(const Settings& settings, size_t parameters);

class TraceKeeper {
 public:
  /// Without a tracer it does nothing.
  TraceKeeper(const Team& team, std::shared_ptr<Tracer> tracer,
              std::shared_ptr<run_folder::HeldFolder> folder);

  /// Collective.
  void begin();
  /// trace.json of all ranks. Collective. One that cannot be written is a warning.
  void finish();
  /// trace.json of this rank alone, where the others cannot be asked any more and there is none yet.
  void save_own(const std::string& why) noexcept;

  Tracer* tracer() const { return tracer_.get(); }

 private:
  RankTrace own() const;
  void write(const std::vector<RankTrace>& ranks, const std::string& note) noexcept;

  const Team& team_;
  std::shared_ptr<Tracer> tracer_;
  std::shared_ptr<run_folder::HeldFolder> folder_;  // rank 0's
  std::vector<ClockReading> first_;
  bool written_ = false;
};

}  // namespace lockstep::train
