#pragma once
// trace.json: the ranks' spans on one time line, as Chrome's and Perfetto's viewers read them.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/parallel/team.h"
#include "trainer/config/settings.h"
#include "trainer/observe/tracer.h"
#include "trainer/run_folder/folder.h"

namespace lockstep::train {

// How far the ranks' clocks are apart, so that what they did can stand on one time line.

using base::ClockReading;

/// All ranks', in rank order. Collective.
std::vector<ClockReading> compare_clocks(const Team& team, const Tracer& tracer);

/// A rank's own moment by rank 0's clock; between two readings the clock is taken to drift evenly.
double aligned(int64_t moment, const ClockReading& first, const ClockReading& last);

/// What one rank adds.
struct RankTrace {
  int rank = 0;
  std::string host;
  std::vector<Span> spans;
  ClockReading first, last;  ///< its clock, compared at the attempt's begin and end
};

/// Spans as text for the way to rank 0, the newest ones that fit into so many bytes, and back.
std::string packed(const std::vector<Span>& spans, size_t most_bytes);
std::vector<Span> unpacked(const std::string& text);

/// The file's text, piece by piece. `note` says of the whole what a reader should know.
void write_trace(const std::vector<RankTrace>& ranks, const std::string& note, const base::ByteSink& sink);

// A run's trace from its first step to its file: the clocks compared at both ends, the ranks' spans gathered.

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
