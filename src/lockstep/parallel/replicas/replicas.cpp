#include "lockstep/parallel/replicas/replicas.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <mutex>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/parallel/replicas/cpu_generator.h"
#include "lockstep/parallel/replicas/device_memory.h"

namespace lockstep::parallel {
namespace {

using Named = torch::OrderedDict<std::string, at::Tensor>;

[[noreturn]] void refuse(const std::string& what) {
  throw InputError("a replica differs from the module: " + what, "data_parallel",
                   "make it as the module was made; a Cloneable makes its layers in reset()");
}

void check_replica(const Named& originals, const Named& own) {
  if (originals.size() != own.size()) refuse("it has other parameters or buffers");
  for (size_t i = 0; i < own.size(); ++i) {
    const auto& name = originals[i].key();
    if (own[i].key() != name) refuse("'" + own[i].key() + "' is in the place of '" + name + "'");
    if (own[i].value().sizes() != originals[i].value().sizes()) refuse("'" + name + "' has another shape");
  }
}

// The same memory and the same count of changes: what the replica does to it, the module sees.
void share_memory(at::Tensor& own, const at::Tensor& original) {
  if (own.is_alias_of(original) && own.sizes() == original.sizes()) return;
  own.set_data(original.detach());
  torch::autograd::impl::set_version_counter(own, torch::autograd::impl::version_counter(original));
}

void copy(at::Tensor& own, const at::Tensor& original, at::Device device) {
  const bool fits = own.sizes() == original.sizes() && own.strides() == original.strides() &&
                    own.scalar_type() == original.scalar_type() && own.device() == device;
  if (!fits) own.set_data(at::empty_like(original, original.options().device(device)));
  own.copy_(original.detach(), /*non_blocking=*/true);
}

// By value: libtorch's optimisers change a parameter without counting it as a change.
bool is_equal(const at::Tensor& own, const at::Tensor& original) {
  return own.scalar_type() == original.scalar_type() && own.sizes() == original.sizes() &&
         own.equal(original.to(own.device()));
}

// A module's parts are switched one by one: a BatchNorm may be kept in evaluation mode.
void copy_modes(const torch::nn::Module& from, torch::nn::Module& to) {
  const auto originals = from.modules();
  const auto own = to.modules();
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i]->is_training() != originals[i]->is_training()) own[i]->train(originals[i]->is_training());
  }
}

}  // namespace

Replicas::Replicas(std::shared_ptr<torch::nn::Module> module, const std::vector<at::Device>& devices,
                   const MakeReplica& make)
    : module_(std::move(module)) {
  std::unordered_set<c10::TensorImpl*> seen;
  for (const auto& parameter : module_->parameters()) {
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) sources_.push_back(parameter);
  }
  const KeptGenerator kept;
  for (const auto& device : devices) {
    const CountedFor counted(copies_.size());
    auto& copy = copies_.emplace_back(Copy{device, make(device), {}, {}});
    if (!copy.module) refuse("there is none");
    if (copy.module == module_) refuse("it is the module itself");
    pair_up(copy);
  }
}

// Shared parameters stand under each of their names, and are paired once.
void Replicas::pair_up(Copy& copy) {
  const auto pairs = [](const Named& originals, const Named& own) {
    check_replica(originals, own);
    std::vector<Pair> result;
    std::unordered_set<c10::TensorImpl*> seen;
    for (size_t i = 0; i < own.size(); ++i) {
      if (!seen.insert(own[i].value().unsafeGetTensorImpl()).second) continue;
      result.push_back({.own = own[i].value(), .original = originals[i].value()});
    }
    return result;
  };
  if (copy.module->modules().size() != module_->modules().size()) refuse("it has other parts");
  copy.parameters = pairs(module_->named_parameters(), copy.module->named_parameters());
  copy.buffers = pairs(module_->named_buffers(), copy.module->named_buffers());
  for (auto& pair : copy.parameters) {
    const auto found = std::find_if(sources_.begin(), sources_.end(), [&pair](const at::Tensor& source) {
      return source.is_same(pair.original);
    });
    pair.source = static_cast<size_t>(found - sources_.begin());
  }
}

void Replicas::refresh(size_t count, bool keep) {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < count; ++i) {
    const CountedFor counted(i);
    auto& replica = copies_[i];
    copy_modes(*module_, *replica.module);
    for (auto& pair : replica.parameters) {
      pair.own.set_requires_grad(pair.original.requires_grad());
      if (i == 0) {
        share_memory(pair.own, pair.original);
      } else if (!keep || !is_equal(pair.own, pair.original)) {
        copy(pair.own, pair.original, replica.device);
      }
    }
    // a graph that saved a running mean does not read it again: the copy is no change to it
    const at::AutoDispatchBelowADInplaceOrView unseen;
    for (auto& pair : replica.buffers) {
      if (i == 0)
        share_memory(pair.own, pair.original);
      else
        copy(pair.own, pair.original, replica.device);
    }
  }
}

std::vector<Replicas::Leaf> Replicas::leaves(size_t device) const {
  std::vector<Leaf> result;
  for (const auto& pair : copies_[device].parameters) {
    if (pair.own.requires_grad()) result.push_back({pair.own, pair.source});
  }
  return result;
}

}  // namespace lockstep::parallel
