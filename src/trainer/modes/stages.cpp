#include "trainer/modes/stages.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/parallel/module_tensors.h"
#include "lockstep/parallel/stages/stage_line.h"

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

namespace {

constexpr const char* kKey = "parallel.pipeline";

bool holds(const Part& part, const std::string& name) {
  return name.starts_with(part.name) && name.size() > part.name.size() && name[part.name.size()] == '.';
}

int64_t numbers_in(const Part& part, const std::vector<parallel::NamedTensor>& parameters) {
  int64_t count = 0;
  for (const auto& [name, tensor] : parameters) count += holds(part, name) ? tensor.numel() : 0;
  return count;
}

std::vector<Part> chain_of(Net& net) {
  auto* chain = dynamic_cast<Chain*>(&net);
  if (chain) return chain->chain();
  throw InputError("this model is no chain of parts, which is what a pipeline cuts into stages", kKey,
                   "take simple_cnn, mlp or pima_net, or derive your model from lockstep::Chain, too");
}

// What has no parameters goes with the part before it, the first with the one behind.
std::vector<size_t> with_parameters(const std::vector<int64_t>& counts) {
  std::vector<size_t> sizes;
  size_t waiting = 0;
  for (const auto count : counts) {
    if (count > 0) {
      sizes.push_back(std::exchange(waiting, 0) + 1);
    } else if (sizes.empty()) {
      ++waiting;
    } else {
      ++sizes.back();
    }
  }
  return sizes;
}

std::vector<std::vector<Part>> cut(const std::vector<Part>& parts, const std::vector<int64_t>& counts,
                                   size_t stages) {
  const auto groups = with_parameters(counts);
  if (groups.size() < stages) {
    std::vector<std::string> names;
    for (const auto& part : parts) names.push_back(part.name);
    throw InputError(format("{} stages, and the model has {} part{} with parameters: {}", stages,
                            groups.size(), groups.size() == 1 ? "" : "s", base::join(names, ", ")),
                     kKey, format("set parallel.pipeline to {} at most", groups.size()));
  }
  std::vector<int64_t> costs;
  auto count = counts.begin();
  for (const auto size : groups) {
    costs.push_back(std::accumulate(count, count + static_cast<ptrdiff_t>(size), int64_t{0}));
    count += static_cast<ptrdiff_t>(size);
  }
  std::vector<std::vector<Part>> result;
  auto part = parts.begin();
  auto group = groups.begin();
  for (const auto taken : parallel::cut_chain(costs, stages)) {
    const auto end = part + static_cast<ptrdiff_t>(
                                std::accumulate(group, group + static_cast<ptrdiff_t>(taken), size_t{0}));
    result.emplace_back(part, end);
    part = end;
    group += static_cast<ptrdiff_t>(taken);
  }
  return result;
}

// What is in no part, an unused branch say, is the last stage's.
int owner_of(const std::vector<std::vector<Part>>& stages, const std::string& name) {
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    for (const auto& part : stages[stage]) {
      if (holds(part, name)) return static_cast<int>(stage);
    }
  }
  return static_cast<int>(stages.size()) - 1;
}

void refuse_shared(const Net& net, const std::vector<std::vector<Part>>& stages) {
  std::map<const void*, std::string> names;
  for (const auto& item : net.named_parameters()) {
    const auto [first, is_new] = names.emplace(item.value().unsafeGetTensorImpl(), item.key());
    if (is_new || owner_of(stages, first->second) == owner_of(stages, item.key())) continue;
    throw InputError(format("{} and {} are one parameter, in two stages", first->second, item.key()), kKey,
                     "use fewer stages, or a model without shared parameters");
  }
}

}  // namespace

std::vector<std::string> Stages::words(const Net& net) const {
  const auto named = parallel::unique_parameters(net);
  std::vector<std::string> result;
  for (size_t stage = 0; stage < parts.size(); ++stage) {
    std::vector<std::string> names;
    for (const auto& part : parts[stage]) names.push_back(part.name);
    int64_t count = 0;
    for (size_t i = 0; i < named.size(); ++i) {
      if (owner_of_parameter[i] == static_cast<int>(stage)) count += named[i].tensor.numel();
    }
    result.push_back(format("{} ({} parameters)", base::join(names, ", "), count));
  }
  return result;
}

Stages cut_into_stages(Net& net, int stages) {
  const auto parts = chain_of(net);
  const auto named = parallel::unique_parameters(net);
  std::vector<int64_t> counts;
  for (const auto& part : parts) counts.push_back(numbers_in(part, named));
  Stages result;
  result.parts = cut(parts, counts, static_cast<size_t>(stages));
  refuse_shared(net, result.parts);
  for (const auto& [name, tensor] : named) {
    result.parameters.push_back(name);
    result.owner_of_parameter.push_back(owner_of(result.parts, name));
  }
  result.shapes = make_dict();
  for (const auto& [name, value] : items(module_state_dict(net))) {
    put(result.shapes, name, at::empty_like(value.toTensor().detach(), at::kMeta));
    result.owner_of_entry.push_back(owner_of(result.parts, name.toStringRef()));
  }
  return result;
}

}  // namespace lockstep::train
