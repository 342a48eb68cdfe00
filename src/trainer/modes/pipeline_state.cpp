#include "trainer/modes/pipeline_state.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/parallel/trees/share_tree.h"

namespace lockstep::train {
namespace {

// The whole model's numbers of a stage's parameters, in the stage's order.
std::vector<int64_t> parameters_of_stage(int stage, const Stages& stages) {
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < stages.owner_of_parameter.size(); ++i) {
    if (stages.owner_of_parameter[i] == stage) numbers.push_back(static_cast<int64_t>(i));
  }
  return numbers;
}

// The one group's options over so many parameters; the order of its keys stays.
Tree group_over(const Tree& groups, size_t parameters) {
  const auto list = elements(groups);
  auto group = make_dict();
  for (const auto& [key, value] : items(list.at(0))) put(group, key, value);
  auto indices = make_list();
  for (size_t i = 0; i < parameters; ++i) append(indices, static_cast<int64_t>(i));
  put(group, "params", indices);
  return make_list({group});
}

void refuse_other(const Tree& whole, size_t parameters) {
  const auto groups = elements(get(whole, "param_groups"));
  const auto there = groups.empty() ? 0 : elements(get(groups[0], "params")).size();
  if (groups.size() == 1 && there == parameters) return;
  throw InputError(format("the checkpoint's optimiser has {} parameter group{} and {} parameters, this model "
                          "1 and {}",
                          groups.size(), groups.size() == 1 ? "" : "s", there, parameters),
                   "optimizer.param_groups", "use the config that the checkpoint was trained with");
}

}  // namespace

Tree gather_state_dict(const Team& line, const Stages& stages, const Tree& own) {
  const auto all = parallel::gather_trees(line, own);
  auto whole = make_dict();
  if (all.empty()) return whole;
  size_t place = 0;
  for (const auto& [name, shape] : items(stages.shapes)) {
    const auto stage = static_cast<size_t>(stages.owner_of_entry[place++]);
    put(whole, name, get(all.at(stage), name.toStringRef()));
  }
  return whole;
}

Tree gather_optimizer(const Team& line, const Stages& stages, const Tree& own) {
  const auto all = parallel::gather_trees(line, own);
  if (all.empty()) return make_dict();
  std::map<int64_t, Tree> states;
  for (int stage = 0; stage < line.world(); ++stage) {
    const auto numbers = parameters_of_stage(stage, stages);
    for (const auto& [index, state] : items(get(all[static_cast<size_t>(stage)], "state")))
      states.emplace(numbers.at(static_cast<size_t>(as_int(index, "state"))), state);
  }
  auto whole = make_dict();
  for (const auto& [index, state] : states) put(whole, index, state);
  return make_dict(
      {{"state", whole}, {"param_groups", group_over(get(own, "param_groups"), stages.parameters.size())}});
}

at::Tensor gather_norms(const Team& line, const Stages& stages, const std::vector<at::Tensor>& own) {
  const auto count = static_cast<int64_t>(stages.parameters.size());
  std::vector<at::Tensor> sums{torch::zeros({count}), torch::zeros({count})};  // is there one; the norm
  size_t next = 0;
  for (const auto number : parameters_of_stage(line.rank(), stages)) {
    const auto& norm = own.at(next++);
    if (!norm.defined()) continue;
    sums[0][number] = 1;
    sums[1][number] = norm;
  }
  line.sum(sums);
  return sums[1].masked_select(sums[0] > 0).to(line.device());  // where the gradients are
}

Tree take_optimizer(int stage, const Stages& stages, const Tree& whole) {
  refuse_other(whole, stages.parameters.size());
  const auto theirs = elements(get(elements(get(whole, "param_groups"))[0], "params"));
  const auto numbers = parameters_of_stage(stage, stages);
  const auto states = get(whole, "state");
  auto own = make_dict();
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (const auto state = find(states, theirs.at(static_cast<size_t>(numbers[i]))))
      put(own, static_cast<int64_t>(i), *state);
  }
  return make_dict(
      {{"state", own}, {"param_groups", group_over(get(whole, "param_groups"), numbers.size())}});
}

}  // namespace lockstep::train
