#pragma once
// trace.json: the ranks' spans on one time line, as Chrome's and Perfetto's viewers read them.

#include <string>
#include <vector>

#include "lockstep/base/files/whole_file.h"
#include "trainer/observe/clock_offset.h"

namespace lockstep::train {

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

}  // namespace lockstep::train
