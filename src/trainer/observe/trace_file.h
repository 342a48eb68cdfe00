#pragma once
// trace.json: the ranks' spans on one time line, as Chrome's and Perfetto's viewers read them.

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/parallel/team.h"
#include "trainer/config/settings.h"
#include "trainer/observe/tracer.h"
#include "trainer/run_folder/folder.h"

namespace lockstep::train {

/// All ranks' clocks against rank 0's, in rank order. Collective.
std::vector<base::ClockReading> compare_clocks(const Team& team);

/// What one rank adds.
struct RankTrace {
  int rank = 0;
  std::string host;
  std::vector<Span> spans;
  base::ClockReading clock;
};

/// The file's text, piece by piece. `note` is for the reader of the whole.
void write_trace(const std::vector<RankTrace>& ranks, const std::string& note, const base::ByteSink& sink);

/// None where train.trace is 0.
std::shared_ptr<Tracer> make_tracer(const Settings& settings, size_t parameters);

class TraceKeeper {
 public:
  /// Without a tracer it does nothing. `folder` is rank 0's.
  TraceKeeper(const Team& team, std::shared_ptr<Tracer> tracer,
              std::shared_ptr<run_folder::HeldFolder> folder)
      : team_(team), tracer_(std::move(tracer)), folder_(std::move(folder)) {}

  /// trace.json of all ranks. Collective. One that cannot be written is a warning.
  void finish();
  /// trace.json of this rank alone, where the others cannot be asked any more and there is none yet.
  void save_own(const std::string& why) noexcept;

  Tracer* tracer() const { return tracer_.get(); }

 private:
  void write(const std::vector<RankTrace>& ranks, const std::string& note) noexcept;

  const Team& team_;
  std::shared_ptr<Tracer> tracer_;
  std::shared_ptr<run_folder::HeldFolder> folder_;
  bool written_ = false;
};

}  // namespace lockstep::train
