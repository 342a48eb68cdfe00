#pragma once
// What has to come back for a resumed run's bits beside model, optimiser and schedule: each rank's random
// numbers, which parameters share a bucket, and which libtorch it was.

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/parallel/team.h"

namespace lockstep::train {

/// The highest "lockstep.format" that is read: a file with a higher number is refused.
constexpr int64_t kCheckpointFormat = 2;
/// Of a file that every lockstep reads. 2 is a regression whose label is learned by a scale, which 0.1 would
/// take for the label itself.
constexpr int64_t kFirstFormat = 1;

/// "rng" and, on a GPU, "device_rng": every rank's generator; one state where all draw the same. Collective.
void put_generators(const Team& team, const Tree& dict);
/// Those of this rank. At another world size they stay as they are, unless all ranks drew the same.
void restore_generators(const Team& team, const Tree& dict);

/// "libtorch": the version that writes, whose sums may round otherwise than another's.
void put_libtorch(const Tree& dict);
/// Says on rank 0 where another version wrote; nothing where the file does not tell.
void compare_libtorch(const Tree& dict);

Tree tree_of(const std::vector<std::vector<std::string>>& buckets);
std::vector<std::vector<std::string>> buckets_of(const Tree& list);

}  // namespace lockstep::train
