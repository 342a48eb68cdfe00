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

class DdpCore {
 public:
  DdpCore(std::shared_ptr<torch::nn::Module> module, ProcessGroup group, DdpOptions options);
  ~DdpCore();
  DdpCore(const DdpCore&) = delete;
  DdpCore& operator=(const DdpCore&) = delete;

  void before_forward();
  /// True where after_forward needs to see the outputs.
  bool watches_outputs() const;
  /// Puts watched tensors in the outputs' places.
  void after_forward(const std::vector<at::Tensor*>& outputs);

  bool syncs() const;
  void set_syncs(bool syncs);
  void register_comm_hook(CommHook hook, const std::string& name);
  void join(const std::function<void()>& training, const JoinOptions& options);
  void reset();
  void check_finalized() const;
  void zero_grad(bool set_to_none);
  std::vector<std::pair<std::string, at::Tensor>> named_parameters() const;
  std::map<std::string, std::string> logging_data() const;
  std::vector<std::vector<std::string>> bucket_names() const;
  std::vector<std::vector<std::string>> settle_buckets();
  void restore_buckets(const std::vector<std::vector<std::string>>& names);

  const DdpOptions& options() const;
  const ProcessGroup& group() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
