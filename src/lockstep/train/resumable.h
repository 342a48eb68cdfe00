#pragma once
// What has to come back for a resumed run's bits beside model, optimiser and schedule: each rank's random
// numbers, which parameters share a bucket, and which libtorch it was.

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/parallel/team.h"

namespace lockstep::train {

/// A program's part of a checkpoint, and that of `lockstep train`.
constexpr const char* kSessionKey = "session";
constexpr const char* kTrainerKey = "lockstep";
/// The highest "session.format" and "lockstep.format" that are read: a file with a higher number is refused.
constexpr int64_t kSessionFormat = 1;
constexpr int64_t kCheckpointFormat = 2;
/// Of a file that every lockstep reads. 2 is a regression whose label is learned by a scale, which 0.1 would
/// take for the label itself.
constexpr int64_t kFirstFormat = 1;

/// InputError for a file of a lockstep that is newer than this one. Python's, and one of safetensors, have no
/// format.
void check_format(const Tree& tree, const std::string& path);
/// One that check_format() takes; the log says where it has no checksum.
Tree read_checkpoint(const std::string& path);

/// The GPUs that this rank computes on, its own device first, where a model lies on `all`; none on a CPU.
std::vector<at::Device> gpus_of(const Team& team, const std::vector<at::Device>& all);

/// Every rank's generators; one state where all draw the same. "rng" is the CPU's, "device_rng" that of the
/// first of `gpus`, "further_device_rng" a list of the others'. Collective.
void put_generators(const Team& team, const Tree& dict, const std::vector<at::Device>& gpus);
/// Those of this rank. At another world size they stay as they are, unless all ranks drew the same; those of
/// GPUs that the checkpoint does not have, too, and rank 0 says so.
void restore_generators(const Team& team, const Tree& dict, const std::vector<at::Device>& gpus);

Tree tree_of(const std::vector<std::vector<std::string>>& buckets);
std::vector<std::vector<std::string>> buckets_of(const Tree& list);

// What the bits of a sum depend on beside the program: a checkpoint says where it was written.

/// The processor's name, and the instructions that libtorch uses of it: "AMD EPYC 9555 26 2 1, AVX512", with
/// its numbers.
std::string processor();

/// "libtorch" and "processor": others round otherwise.
void put_machine(const Tree& dict);

/// Of what a file does not tell: nothing is said, or that.
enum class Unrecorded { passes, differs };

/// What of it is another here: "written with libtorch 2.11.0, and this is 2.15.0".
std::vector<std::string> unlike_machine(const Tree& dict, Unrecorded unrecorded = Unrecorded::passes);

}  // namespace lockstep::train

// What a communication hook keeps from step to step, in a checkpoint: PowerSGD's errors, a user's own.

namespace lockstep {
class DdpCore;
}

namespace lockstep::train {

/// "comm_hook", with every rank's part, where a hook keeps something. `core` is null on a rank whose
/// gradients do not travel; `layout` says how the ranks share the model. Collective; the whole is on rank 0.
void put_hook_memory(const Team& team, const DdpCore* core, const std::string& layout, const Tree& dict);
/// This rank's, where every rank finds its own; else all begin afresh, and that is said. Collective.
void restore_hook_memory(const Team& team, const DdpCore* core, const std::string& layout, const Tree& dict);

}  // namespace lockstep::train
