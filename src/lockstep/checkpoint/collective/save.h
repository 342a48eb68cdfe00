#pragma once
// Checkpoints of a training program: all ranks save together, and all load, so that training resumes with the
// same results, bit for bit.

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

/// A module, wrapped or not. Its tensors have the module's own names in the file.
class SavedModule {  // NOLINTBEGIN(google-explicit-constructor)
 public:
  /// A model that ddp() wraps; the file also contains its buckets.
  template <class M>
  SavedModule(const std::shared_ptr<DistributedDataParallel<M>>& model)
      : module_(model->module().get()), core_(&model->core()) {}
  /// A model that data_parallel() wraps.
  template <class M>
  SavedModule(const std::shared_ptr<DataParallel<M>>& model)
      : module_(model->module().get()), replicas_(model->devices()) {}
  /// Any other module.
  SavedModule(torch::nn::Module& module) : module_(&module) {}
  /// The same from a shared pointer.
  template <std::derived_from<torch::nn::Module> M>
  SavedModule(const std::shared_ptr<M>& module) : module_(module.get()) {}
  /// The same from a holder.
  template <class M>
  SavedModule(const torch::nn::ModuleHolder<M>& module) : module_(module.ptr().get()) {}

  // NOLINTEND(google-explicit-constructor)
  /// The module itself.
  torch::nn::Module& module() const { return *module_; }
  /// The DDP wrapper's core; null without DDP.
  DdpCore* core() const { return core_; }
  /// The devices of its tensors.
  std::vector<c10::Device> devices() const;

 private:
  torch::nn::Module* module_;
  DdpCore* core_ = nullptr;
  std::vector<c10::Device> replicas_ = {};  // of data_parallel()
};

/// The parts of a checkpoint. An omitted part is neither saved nor loaded. Each rank's random state is always
/// included.
struct CheckpointParts {
  SavedModule model;
  Optimizer* optimizer = nullptr;
  Schedule* schedule = nullptr;
  GradScaler* scaler = nullptr;
  DistributedSampler* sampler = nullptr;
  /// For save(): how many samples this rank has used since the sampler's set_epoch() or resume().
  int64_t samples = 0;
  /// For save(), on rank 0: other values, which load() returns: make_dict({{"best", 0.93}}).
  Tree more = {};
};

/// Writes a .pt file that Python's torch.load(weights_only=True) reads: "model" and "optimizer" in PyTorch's
/// format, the rest under "session". Rank 0 writes it atomically. If that fails, every rank throws the same
/// error, and an older file of that name does not change. Collective.
void save(const std::string& path, const Session& session, const CheckpointParts& parts);

/// Restores all parts and returns save()'s `more`, or None. Also reads checkpoints of `lockstep train`. Every
/// rank throws the same InputError if the file is missing, damaged or from another model. In that case end
/// the program: some parts may already be loaded. With another world size the sampler distributes the rest of
/// the epoch again, and results differ in the last bits. Collective.
Tree load(const std::string& path, const Session& session, const CheckpointParts& parts);

/// Calls load() and returns true if rank 0 finds the file; otherwise returns false on every rank. Collective.
bool load_if_there(const std::string& path, const Session& session, const CheckpointParts& parts);

}  // namespace lockstep
