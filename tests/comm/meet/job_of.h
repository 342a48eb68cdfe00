#pragma once
// A rank's place in a job, for the tests of what follows from it.

#include "lockstep/launch/job.h"

namespace lockstep::test {

inline Job job_of(int rank, int world, int nodes = 1) {
  Job job;
  job.rank = rank;
  job.world = world;
  job.nodes = nodes;
  return job;
}

}  // namespace lockstep::test
