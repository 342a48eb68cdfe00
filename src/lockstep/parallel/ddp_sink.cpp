#include "lockstep/parallel/ddp_sink.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <utility>

#include "lockstep/base/libtorch.h"

namespace lockstep::parallel {
namespace {

class DdpSink : public torch::autograd::Node {
 public:
  explicit DdpSink(std::shared_ptr<DelayedAllReduce> delayed) : delayed_(std::move(delayed)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (delayed_ && !delayed_->queued) queue_all_reduce();
    return std::move(gradients);
  }

 private:
  void queue_all_reduce() {
    delayed_->queued = true;
    torch::autograd::Engine::get_default_engine().queue_callback([delayed = delayed_] {
      if (const auto reducer = delayed->reducer.lock()) reducer->delay_all_reduce();
    });
  }

  std::shared_ptr<DelayedAllReduce> delayed_;
};

at::Tensor clone_outside_autograd(const at::Tensor& tensor) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return tensor.clone();
}

}  // namespace

void put_sink_behind(const std::vector<at::Tensor*>& outputs, std::shared_ptr<DelayedAllReduce> delayed) {
  torch::autograd::variable_list inputs;
  for (const at::Tensor* output : outputs) inputs.push_back(*output);
  if (!torch::autograd::compute_requires_grad(inputs)) return;

  const auto sink = base::make_node<DdpSink>(std::move(delayed));
  sink->set_next_edges(torch::autograd::collect_next_edges(inputs));
  for (at::Tensor* output : outputs) {
    // a tensor without a history stays itself (pytorch#60733)
    if (!output->defined() || !output->grad_fn()) {
      sink->add_input_metadata(torch::autograd::Node::undefined_input());
      continue;
    }
    at::Tensor copy = clone_outside_autograd(*output);
    torch::autograd::create_gradient_edge(copy, sink);
    *output = std::move(copy);
  }
}

}  // namespace lockstep::parallel
