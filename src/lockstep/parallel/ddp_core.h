#pragma once
// What DDP does around a forward pass, whatever the module's type: the part of DistributedDataParallel
// without templates.

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/comm_hook.h"
#include "lockstep/parallel/ddp_options.h"

namespace torch::nn {
class Module;
}

namespace lockstep {

/// DistributedDataParallel without its module's type; made and called by it. Its members of the same names
/// say what each does.
class DdpCore {
 public:
  DdpCore(std::shared_ptr<torch::nn::Module> module, ProcessGroup group, DdpOptions options);
  ~DdpCore();
  DdpCore(const DdpCore&) = delete;
  DdpCore& operator=(const DdpCore&) = delete;

  /// Buffers are made alike and the reducer prepared.
  void before_forward();
  /// True where after_forward needs to see the outputs.
  bool watches_outputs() const;
  /// Puts watched tensors in the outputs' places.
  void after_forward(const std::vector<at::Tensor*>& outputs);

  /// Are gradients exchanged in a backward pass? Not while a NoSync lives.
  bool syncs() const;
  /// For NoSync.
  void set_syncs(bool syncs);
  /// How buckets travel.
  void register_comm_hook(CommHook hook, const std::string& name);
  /// The hook that was registered; empty without one.
  const CommHook& comm_hook() const;
  /// Its name.
  const std::string& comm_hook_name() const;
  /// Training over uneven numbers of batches.
  void join(const std::function<void()>& training, const JoinOptions& options);
  /// No more times for logging_data(): to measure a step is to wait for the GPU, and one that is captured
  /// cannot.
  void stop_timing();
  /// Forgets a step that was cut short.
  void reset();
  /// Throws where a bucket was not reduced.
  void check_finalized() const;
  /// Right with gradients that are views, too.
  void zero_grad(bool set_to_none);
  /// An error unless the exchanged parameters are on this device; the rest of the module moves there.
  void to(c10::Device device);
  /// Every parameter once, with its name.
  std::vector<std::pair<std::string, at::Tensor>> named_parameters() const;
  /// Options, sizes and times under Python's names.
  std::map<std::string, std::string> logging_data() const;
  /// The parameters' names, bucket by bucket.
  std::vector<std::vector<std::string>> bucket_names() const;
  /// The buckets as the next step will find them; collective.
  std::vector<std::vector<std::string>> settle_buckets();
  /// Begins with the buckets of a checkpoint.
  void restore_buckets(const std::vector<std::vector<std::string>>& names);

  /// The switches it was made with.
  const DdpOptions& options() const;
  /// The group that it averages over.
  const ProcessGroup& group() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
