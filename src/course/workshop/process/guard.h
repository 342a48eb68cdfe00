#pragma once
// A learner's program may kill the one that checks it: somebody stays above to say so.

namespace lockstep::workshop {

/// Goes on in a child. The process that called waits above it, passes on what it is told by signals, and ends
/// as the child does; where the child was killed, with words and status 1.
void stand_guard();

}  // namespace lockstep::workshop
