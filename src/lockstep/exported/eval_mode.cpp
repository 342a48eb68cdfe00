#include "lockstep/exported/eval_mode.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep::exported {
namespace {

constexpr std::array<std::string_view, 3> kTrainingFlags = {"train", "training", "use_input_stats"};

bool is_training_flag(const c10::Argument& argument, const Argument& given) {
  return given.kind == Argument::Kind::constant && given.value.isBool() &&
         std::find(kTrainingFlags.begin(), kTrainingFlags.end(), argument.name()) != kTrainingFlags.end();
}

bool is_dropout(const c10::Argument& argument, const Argument& given) {
  return argument.name() == "dropout_p" && given.kind == Argument::Kind::constant && given.value.isDouble();
}

// Without running statistics a norm takes the batch's own in eval mode, too.
bool is_norm_without_statistics(const Node& node) {
  const auto& name = node.op->schema().name();
  if (name != "aten::batch_norm" && name != "aten::instance_norm") return false;
  const auto mean = static_cast<size_t>(*node.op->schema().argumentIndexWithName("running_mean"));
  const auto& given = node.arguments[mean];
  return given.kind == Argument::Kind::constant && given.value.isNone();
}

}  // namespace

Flags set_eval_mode(Node& node, bool counts_batches) {
  Flags flags;
  node.only_in_training = counts_batches;
  if (is_norm_without_statistics(node)) return flags;
  const auto& wanted = node.op->schema().arguments();
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto& given = node.arguments[i];
    if (is_training_flag(wanted[i], given)) {
      const bool is_on = given.value.toBool();
      ++(is_on ? flags.on : flags.off);
      if (is_on) node.eval_arguments.emplace_back(i, false);
    } else if (is_dropout(wanted[i], given)) {
      node.eval_arguments.emplace_back(i, 0.0);
    }
  }
  return flags;
}

}  // namespace lockstep::exported
