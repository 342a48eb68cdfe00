#include "tools/model_check/words.h"

#include <algorithm>
#include <limits>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::model_check {
namespace {

constexpr size_t kNamed = 5;  // parameters without a gradient
constexpr const char* kLostBackward =
    "gradients differ where outputs agree: torch.export drops the backward of a custom autograd.Function, "
    "and "
    "hooks on gradients, and does not say so; write that part with torch's operators\n";

struct Counts {
  int64_t parameters = 0, numbers = 0, frozen = 0, buffers = 0;
};

Counts counts_of(const ExportedNet& net) {
  Counts counts{.buffers = static_cast<int64_t>(net.buffers().size())};
  for (const auto& parameter : net.parameters()) {
    ++counts.parameters;
    counts.numbers += parameter.numel();
    counts.frozen += parameter.requires_grad() ? 0 : 1;
  }
  return counts;
}

std::string counted(int64_t count, const std::string& word) {
  return format("{} {}{}", count, word, count == 1 ? "" : "s");
}

std::string counts_words(const Counts& counts) {
  const auto frozen = counts.frozen == 0 ? "" : format(", {} of them frozen", counts.frozen);
  return format("{} of {}{}; {}\n", counted(counts.parameters, "parameter"),
                counted(counts.numbers, "number"), frozen, counted(counts.buffers, "buffer"));
}

/// A most that is none, as torch.export writes it.
bool is_endless(int64_t most) {
  return most >= std::numeric_limits<int64_t>::max() - 1;
}

std::string range_words(const std::pair<int64_t, int64_t>& range) {
  const auto [least, most] = range;
  if (is_endless(most)) return least <= 1 ? "any size" : format("{} or more", least);
  return least <= 1 ? format("up to {}", most) : format("{} to {}", least, most);
}

size_t longest_name(const ExportedFacts& facts) {
  size_t longest = 0;
  for (const auto* values : {&facts.inputs, &facts.outputs})
    for (const auto& value : *values) longest = std::max(longest, value.name.size());
  return longest;
}

std::string values_words(const char* word, const std::vector<ExportedValue>& values, size_t width) {
  std::string text;
  for (const auto& value : values) {
    const auto sizes = dtype_of(value) ? " [" + base::join(value.sizes, ", ") + "]" : "";
    text += format("{:<8}{:<{}}  {}{}\n", word, value.name, width, value.kind, sizes);
  }
  return text;
}

std::string operators_words(const std::map<std::string, int64_t>& operators) {
  std::vector<std::string> parts;
  for (const auto& [name, count] : operators) parts.push_back(format("{} {}", name, count));
  return "operators: " + base::join(parts, ", ") + "\n";
}

std::string names_words(const std::vector<std::string>& names) {
  const auto shown = std::min(names.size(), kNamed);
  const auto text = base::join({names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown)}, ", ");
  return shown == names.size() ? text : text + format(" and {} more", names.size() - shown);
}

OrderedJson values_json(const std::vector<ExportedValue>& values) {
  auto list = OrderedJson::array();
  for (const auto& value : values)
    list.push_back({{"name", value.name}, {"kind", value.kind}, {"sizes", value.sizes}});
  return list;
}

OrderedJson sizes_json(const ExportedFacts& facts) {
  auto sizes = OrderedJson::object();
  for (const auto& [name, range] : facts.sizes) {
    const auto [least, most] = range;
    sizes[name] = {{"least", least}, {"most", is_endless(most) ? OrderedJson() : OrderedJson(most)}};
  }
  return sizes;
}

void add_json(const std::vector<Compared>& all, OrderedJson& list) {
  for (const auto& one : all) {
    list.push_back({{"name", one.name},
                    {"agrees", one.agrees},
                    {"same_bits", one.same_bits},
                    {"difference", one.difference},
                    {"largest", one.largest},
                    {"words", one.words}});
  }
}

}  // namespace

std::string facts_words(const ExportedNet& net, const std::string& path) {
  const auto& facts = net.facts();
  const auto width = longest_name(facts);
  const auto torch =
      facts.torch_version.empty() ? "a torch that does not say which" : "torch " + facts.torch_version;
  auto text = format("{}: written by {}, schema {}\n", path, torch, facts.schema);
  text += counts_words(counts_of(net));
  text += values_words("input", facts.inputs, width) + values_words("output", facts.outputs, width);
  for (const auto& [name, range] : facts.sizes)
    text += format("{:<8}{}: {}\n", "size", name, range_words(range));
  text += operators_words(facts.operators);
  for (const auto& note : facts.notes) text += "note: " + note + "\n";
  return text;
}

std::string pass_words(const char* mode, const Reached& reached) {
  const auto missing = std::ssize(reached.without_gradient);
  const auto all = counted(reached.trained, "parameter");
  if (missing == 0) return format("{}: forward and backward run; {} got a gradient\n", mode, all);
  return format("{}: forward and backward run; {} of {} got no gradient: {}\n", mode, missing, all,
                names_words(reached.without_gradient));
}

std::string comparison_words(const Comparison& comparison, const std::string& sample) {
  std::string text;
  for (const auto& one : comparison.outputs) text += format("{}: {}\n", one.name, one.words);
  int64_t same = 0;
  for (const auto& one : comparison.gradients) {
    same += one.same_bits ? 1 : 0;
    if (!one.same_bits) text += format("{}: {}\n", one.name, one.words);
  }
  if (same > 0) text += format("{}: the same bits\n", counted(same, "gradient"));
  if (comparison.lost_backward()) text += kLostBackward;
  return text + format("{} {} ({})\n", comparison.agrees() ? "agrees with" : "does not agree with", sample,
                       kToleranceWords);
}

OrderedJson facts_json(const ExportedNet& net, const std::string& path) {
  const auto& facts = net.facts();
  const auto counts = counts_of(net);
  return {{"schema", 1},
          {"file", path},
          {"torch", facts.torch_version},
          {"file_schema", facts.schema},
          {"parameters", counts.parameters},
          {"numbers", counts.numbers},
          {"frozen", counts.frozen},
          {"buffers", counts.buffers},
          {"inputs", values_json(facts.inputs)},
          {"outputs", values_json(facts.outputs)},
          {"sizes", sizes_json(facts)},
          {"operators", facts.operators},
          {"notes", facts.notes}};
}

OrderedJson comparison_json(const Comparison& comparison, const std::string& sample) {
  auto tensors = OrderedJson::array();
  add_json(comparison.outputs, tensors);
  add_json(comparison.gradients, tensors);
  return {{"sample", sample},
          {"agrees", comparison.agrees()},
          {"lost_backward", comparison.lost_backward()},
          {"tensors", tensors}};
}

}  // namespace lockstep::model_check
