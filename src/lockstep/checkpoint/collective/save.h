#pragma once
// A training program's checkpoints: saved by all ranks together, and loaded so that training resumes with the
// same bits.
//
//   lockstep::save("run.pt", session, {.model = model, .optimizer = &optimizer, .sampler = &sampler});
//   lockstep::load("run.pt", session, {.model = model, .optimizer = &optimizer, .sampler = &sampler});

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/data/sampler.h"
#include "lockstep/optim/grad_scaler.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/parallel/data_parallel.h"
#include "lockstep/parallel/ddp.h"
#include "lockstep/parallel/session.h"

namespace lockstep {

/// A module, wrapped or not. The file has its tensors under the module's own names.
class SavedModule {  // NOLINTBEGIN(google-explicit-constructor)
 public:
  /// A model that ddp() wraps; the file also has its buckets.
  template <class M>
  SavedModule(const std::shared_ptr<DistributedDataParallel<M>>& model)
      : module_(model->module().get()), core_(&model->core()) {}
  /// A model that data_parallel() wraps.
  template <class M>
  SavedModule(const std::shared_ptr<DataParallel<M>>& model)
      : module_(model->module().get()), replicas_(model->devices()) {}
  /// Any other module.
  SavedModule(torch::nn::Module& module) : module_(&module) {}
  /// The same by its pointer.
  template <std::derived_from<torch::nn::Module> M>
  SavedModule(const std::shared_ptr<M>& module) : module_(module.get()) {}
  /// The same by its holder.
  template <class M>
  SavedModule(const torch::nn::ModuleHolder<M>& module) : module_(module.ptr().get()) {}

  // NOLINTEND(google-explicit-constructor)
  /// The module itself.
  torch::nn::Module& module() const { return *module_; }
  /// Null without DDP.
  DdpCore* core() const { return core_; }
  /// The devices of its tensors.
  std::vector<c10::Device> devices() const;

 private:
  torch::nn::Module* module_;
  DdpCore* core_ = nullptr;
  std::vector<c10::Device> replicas_ = {};  // of data_parallel()
};

/// The parts of a checkpoint. An omitted part is neither saved nor loaded; each rank's random state always
/// is.
struct CheckpointParts {
  SavedModule model;
  Optimizer* optimizer = nullptr;
  Schedule* schedule = nullptr;
  GradScaler* scaler = nullptr;
  DistributedSampler* sampler = nullptr;
  /// For save(): how many samples this rank has used since the sampler's set_epoch() or resume().
  int64_t samples = 0;
  /// For save(), on rank 0: other values that load() returns: make_dict({{"best", 0.93}}).
  Tree more = {};
};

/// Writes a .pt file that Python's torch.load(weights_only=True) reads: "model" and "optimizer" as PyTorch
/// writes them, the rest under "session". Rank 0 writes it, whole or not at all; where it cannot, every rank
/// throws the same error and an older file of that name is untouched. Collective.
void save(const std::string& path, const Session& session, const CheckpointParts& parts);

/// Puts everything back and returns what save() was given as `more` (None where nothing was). Reads a
/// checkpoint of `lockstep train`, too. InputError, the same on every rank, for a file that is missing,
/// damaged or another model's; then the program should end, for a part of the state may be back already.
/// At another world size the sampler deals the epoch's rest out again, and the bits differ. Collective.
Tree load(const std::string& path, const Session& session, const CheckpointParts& parts);

/// The same where there is such a file; false where there is none, as rank 0 sees it. Collective.
bool load_if_there(const std::string& path, const Session& session, const CheckpointParts& parts);

}  // namespace lockstep
