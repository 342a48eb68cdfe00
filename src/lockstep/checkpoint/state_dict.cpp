#include "lockstep/checkpoint/state_dict.h"

#include <torch/nn/module.h>
#include <torch/utils.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"

namespace lockstep {

namespace {

constexpr std::string_view kPrefix = "module.";
constexpr size_t kNamed = 5;  // mismatches an error names

/// Python's order: a module's parameters, its buffers, then its children.
void collect(const torch::nn::Module& module, const std::string& prefix, const Tree& into) {
  for (const auto& entry : module.named_parameters(/*recurse=*/false))
    put(into, prefix + entry.key(), entry.value());
  for (const auto& entry : module.named_buffers(/*recurse=*/false))
    put(into, prefix + entry.key(), entry.value());
  for (const auto& child : module.named_children()) collect(*child.value(), prefix + child.key() + ".", into);
  const auto* own = dynamic_cast<const OwnStateDict*>(&module);
  if (!own) return;
  for (const auto& [name, first] : own->tied()) put(into, prefix + name, *find(into, prefix + first));
  for (const auto& name : own->unsaved()) static_cast<void>(into.toGenericDict().erase(prefix + name));
}

bool is_state_dict(const Tree& tree) {
  if (!tree.isGenericDict() || tree.toGenericDict().empty()) return false;
  const auto entries = items(tree);
  return std::all_of(entries.begin(), entries.end(),
                     [](const auto& entry) { return entry.first.isString() && entry.second.isTensor(); });
}

Tree without_prefix(const Tree& state, const std::string& file) {
  const auto entries = items(state);
  const auto prefixed = std::all_of(entries.begin(), entries.end(), [](const auto& entry) {
    return std::string_view(entry.first.toStringRef()).starts_with(kPrefix);
  });
  if (!prefixed) return state;
  auto renamed = make_dict();
  for (const auto& [name, value] : entries) put(renamed, name.toStringRef().substr(kPrefix.size()), value);
  log::info(format("{}: saved from a wrapped model, so \"{}\" is removed from its names", file, kPrefix));
  return without_prefix(renamed, file);  // DDP around DataParallel
}

std::string mismatch(const std::string& name, const at::Tensor& wanted, const at::Tensor& given) {
  if (wanted.sizes() != given.sizes())
    return format("{}: shape {} in the file, {} in the model", name, c10::str(given.sizes()),
                  c10::str(wanted.sizes()));
  if (wanted.scalar_type() == given.scalar_type()) return {};
  return format("{}: {} in the file, {} in the model", name, c10::toString(given.scalar_type()),
                c10::toString(wanted.scalar_type()));
}

}  // namespace

Tree module_state_dict(const torch::nn::Module& module) {
  auto state = make_dict();
  collect(module, "", state);
  return state;
}

Tree find_state_dict(const Tree& content, const std::string& file) {
  if (is_state_dict(content)) return without_prefix(content, file);
  for (const char* key : {"model", "state_dict", "model_state_dict"}) {
    if (const auto nested = find(content, key); nested && is_state_dict(*nested))
      return without_prefix(*nested, file);
  }
  throw InputError("the file holds no model: neither a state_dict nor one under \"model\" or \"state_dict\"",
                   file, "list its contents with `lockstep inspect FILE`");
}

std::vector<std::string> state_dict_mismatches(const Tree& expected, const Tree& given) {
  std::vector<std::string> found;
  for (const auto& [key, wanted] : items(expected)) {
    const auto& name = key.toStringRef();
    const auto value = find(given, key);
    if (!value || !value->isTensor()) {
      found.push_back(name + ": missing in the file");
    } else if (auto text = mismatch(name, wanted.toTensor(), value->toTensor()); !text.empty()) {
      found.push_back(std::move(text));
    }
  }
  for (const auto& [key, value] : items(given))
    if (!find(expected, key)) found.push_back(as_string(key, "a tensor's name") + ": not in the model");
  return found;
}

void check_state_dict(const Tree& expected, const Tree& given, const std::string& file) {
  const auto found = state_dict_mismatches(expected, given);
  if (found.empty()) return;
  auto text = format("the checkpoint belongs to another model ({} mismatch{})", found.size(),
                     found.size() > 1 ? "es" : "");
  for (size_t i = 0; i < std::min(found.size(), kNamed); ++i) text += "\n  " + found[i];
  if (found.size() > kNamed) text += format("\n  and {} more", found.size() - kNamed);
  throw InputError(text, file, "use the model, or the config, that the checkpoint was trained with");
}

void load_module_state_dict(torch::nn::Module& module, const Tree& state_dict, const std::string& file) {
  const auto own = module_state_dict(module);
  check_state_dict(own, state_dict, file);
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : items(own)) tensor.toTensor().copy_(find(state_dict, name)->toTensor());
}

}  // namespace lockstep
