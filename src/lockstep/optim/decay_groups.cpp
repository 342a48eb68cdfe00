// Which parameters decay: by parts of their names, as transformers' Trainer and its examples divide them.
#include <algorithm>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/optim/optimizer.h"

namespace lockstep {
namespace {

bool has(const NamedParameter& parameter, const std::string& part) {
  return parameter.first.find(part) != std::string::npos;
}

void check_parts(const std::vector<std::string>& parts, const std::vector<NamedParameter>& parameters) {
  for (const auto& part : parts) {
    const auto in_name = [&](const auto& parameter) { return has(parameter, part); };
    if (!part.empty() && std::any_of(parameters.begin(), parameters.end(), in_name)) continue;
    throw InputError(
        format("no parameter's name has '{}' in it", base::printable(part)), "optim.no_decay",
        "give parts of the names that `lockstep inspect` lists of a checkpoint, or leave it out");
  }
}

}  // namespace

OptimGroups decay_groups(const OptimSettings& settings, const std::vector<NamedParameter>& parameters) {
  const auto& parts = settings.no_decay;
  check_parts(parts, parameters);
  OptimGroups groups{{{}, settings}, {{}, settings}};
  groups[1].options.weight_decay = 0;
  std::unordered_set<const c10::TensorImpl*> seen;  // a tied one goes by its first name
  for (const auto& parameter : parameters) {
    if (!seen.insert(parameter.second.unsafeGetTensorImpl()).second) continue;
    const bool spared =
        std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return has(parameter, part); });
    groups[spared].params.push_back(parameter.second);
  }
  if (groups[1].params.empty()) groups.pop_back();
  if (groups[0].params.empty() && groups.size() > 1) groups.erase(groups.begin());
  return groups;
}

}  // namespace lockstep
