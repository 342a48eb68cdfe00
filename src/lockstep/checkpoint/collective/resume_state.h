#pragma once
// What a checkpoint needs for an exact resume, beside model, optimizer and schedule: each rank's random
// state, the buckets, the libtorch version, and the state of a communication hook.

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/parallel/team.h"

namespace lockstep {
class DdpCore;
}

namespace lockstep::checkpoint {

/// The entries of a checkpoint from a user's program and from `lockstep train`.
constexpr const char* kSessionKey = "session";
constexpr const char* kTrainerKey = "lockstep";
/// The highest "session.format" and "lockstep.format" that this lockstep reads.
constexpr int64_t kSessionFormat = 1;
constexpr int64_t kCheckpointFormat = 2;
/// The format that every lockstep reads. Format 2 has a scaled label, which 0.1 would read as unscaled.
constexpr int64_t kFirstFormat = 1;

/// InputError for a file with a higher format. Files from Python and safetensors have no format.
void check_format(const Tree& tree, const std::string& path);
/// Reads a checkpoint and checks its format; logs a missing checksum.
Tree read_checkpoint(const std::string& path);

/// This rank's GPUs, its own device first, for a model on the devices `all`; empty on a CPU.
std::vector<at::Device> gpus_of(const Team& team, const std::vector<at::Device>& all);

/// Every rank's random state, or one state if all are equal. "rng" is the CPU's, "device_rng" that of the
/// first of `gpus`, "further_device_rng" a list for the others. Collective.
void put_generators(const Team& team, const Tree& dict, const std::vector<at::Device>& gpus);
/// Restores this rank's random state. At another world size the state does not change, unless all ranks had
/// the same one; neither does that of GPUs that the checkpoint does not have, with a warning on rank 0.
void restore_generators(const Team& team, const Tree& dict, const std::vector<at::Device>& gpus);

Tree tree_of(const std::vector<std::vector<std::string>>& buckets);
std::vector<std::vector<std::string>> buckets_of(const Tree& list);

/// The processor's name and numbers, and the instructions that libtorch uses: "AMD EPYC 9555 26 2 1, AVX512".
std::string processor();

/// What the bits depend on: a key of the checkpoint, its value here, and words for another value.
struct Fact {
  const char* key;
  std::string here;
  const char* written;  // "written with libtorch"
};

/// "libtorch" and "processor", because others may round differently.
std::vector<Fact> machine_facts();

void put_facts(const Tree& dict, const std::vector<Fact>& facts);

/// Whether a fact that the file does not have counts as a difference.
enum class MissingFact { passes, differs };

/// The differences: "written with libtorch 2.11.0, but this run uses 2.15.0".
std::vector<std::string> differences(const Tree& dict, const std::vector<Fact>& facts,
                                     MissingFact unrecorded = MissingFact::passes);

/// Adds "comm_hook", every rank's state of a communication hook (PowerSGD's errors, a user's own). `core` is
/// null on a rank without DDP; `layout` describes how the ranks share the model. Collective; rank 0 has the
/// result.
void put_hook_memory(const Team& team, const DdpCore* core, const std::string& layout, const Tree& dict);
/// Restores this rank's state if every rank finds its own; else all start anew, with a warning. Collective.
void restore_hook_memory(const Team& team, const DdpCore* core, const std::string& layout, const Tree& dict);

}  // namespace lockstep::checkpoint
