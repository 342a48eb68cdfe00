#include "trainer/modes/stage_net.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <map>

namespace lockstep::train {

StageNet::StageNet(std::shared_ptr<Net> whole, const Stages& stages, parallel::StageLine& line)
    : whole_(std::move(whole)), parts_(stages.parts.at(static_cast<size_t>(line.stage()))), line_(line) {
  const torch::NoGradGuard no_grad;
  std::map<std::string, int> owners;
  size_t place = 0;
  for (const auto& [name, shape] : items(stages.shapes))
    owners[name.toStringRef()] = stages.owner_of_entry[place++];
  const auto take = [&](const auto& named, bool is_parameter) {
    for (const auto& item : named) {
      const auto& tensor = item.value();
      if (owners.at(item.key()) == line.stage()) {
        adopt(item.key(), tensor, is_parameter);
      } else {
        tensor.set_data(at::empty({0}, tensor.options()));
      }
    }
  };
  take(whole_->named_parameters(), true);
  take(whole_->named_buffers(), false);
}

// The modules that its name goes through stand here, too, without their code.
void StageNet::adopt(const std::string& name, const at::Tensor& tensor, bool is_parameter) {
  torch::nn::Module* module = this;
  size_t begin = 0;
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', begin)) {
    const auto child = name.substr(begin, dot - begin);
    const auto children = module->named_children();
    module = children.contains(child)
                 ? children[child].get()
                 : module->register_module(child, std::make_shared<torch::nn::Module>(child)).get();
    begin = dot + 1;
  }
  const auto own = name.substr(begin);
  if (is_parameter) {
    module->register_parameter(own, tensor, tensor.requires_grad());
  } else {
    module->register_buffer(own, tensor);
  }
}

torch::Tensor StageNet::own_forward(torch::Tensor x) const {
  for (const auto& part : parts_) x = part.forward(x);
  return x;
}

torch::Tensor StageNet::received(const std::vector<int64_t>& batch) {
  auto input = line_.input(batch);
  line_.exchange({input});
  return input.tensor;
}

torch::Tensor StageNet::forward(const torch::Tensor& input) {
  const auto batch = input.sizes().vec();
  const auto output = own_forward(line_.is_first() ? input : received(batch));
  if (!line_.is_last()) line_.exchange({line_.output(output, batch)});
  const auto result = line_.from_last(output, batch);
  line_.flush();
  return result;
}

void StageNet::train(bool on) {
  torch::nn::Module::train(on);
  whole_->train(on);
}

}  // namespace lockstep::train
