// `lockstep model check` and `lockstep inspect` of a .pt2: what it holds, and whether it computes as Python.
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/memory.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/pt.h"
#include "lockstep/launch/process/report.h"
#include "lockstep/models/exported.h"
#include "tools/model_check/model_check.h"

namespace lockstep {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ExportedValue, name, kind, sizes)
}

namespace lockstep::model_check {
namespace {

using Json = nlohmann::ordered_json;

// What the file holds.

// The dtype that an input's kind names; nothing where it is no tensor.
std::optional<at::ScalarType> dtype_of(const ExportedValue& value) {
  const auto& known = c10::getStringToDtypeMap();
  const auto found = known.find(value.kind);
  // a kind of Python's own is called like an old name of torch's: "int" is int32 there
  if (found == known.end() || c10::getDtypeNames(found->second).first != value.kind) return std::nullopt;
  return found->second;
}

Json facts_json(const ExportedNet& net, const std::string& path) {
  const auto& facts = net.facts();
  auto sizes = Json::object();
  for (const auto& [name, range] : facts.sizes) {
    const bool endless =
        range.second >= std::numeric_limits<int64_t>::max() - 1;  // as torch.export writes it
    sizes[name] = {{"least", range.first}, {"most", endless ? Json() : Json(range.second)}};
  }
  int64_t numbers = 0, frozen = 0;
  for (const auto& parameter : net.parameters()) {
    numbers += parameter.numel();
    frozen += parameter.requires_grad() ? 0 : 1;
  }
  return {{"schema", 1},
          {"file", path},
          {"torch", facts.torch_version},
          {"file_schema", facts.schema},
          {"parameters", net.parameters().size()},
          {"numbers", numbers},
          {"frozen", frozen},
          {"buffers", net.buffers().size()},
          {"inputs", nlohmann::json(facts.inputs)},
          {"outputs", nlohmann::json(facts.outputs)},
          {"sizes", sizes},
          {"operators", facts.operators},
          {"notes", facts.notes}};
}

// The same for people, a line each.
std::string facts_words(const ExportedNet& net, const Json& json) {
  const auto& facts = net.facts();
  auto text =
      format("{}: written by {}, schema {}\n", json["file"].get<std::string>(),
             facts.torch_version.empty() ? "an unknown torch" : "torch " + facts.torch_version, facts.schema);
  const auto frozen = json["frozen"] == 0 ? "" : format(", {} of them frozen", json["frozen"].get<int64_t>());
  text += format("{} of {}{}; {}\n", base::counted(json["parameters"].get<int64_t>(), "parameter"),
                 base::counted(json["numbers"].get<int64_t>(), "number"), frozen,
                 base::counted(json["buffers"].get<int64_t>(), "buffer"));
  for (const auto* values : {&facts.inputs, &facts.outputs})
    for (const auto& value : *values)
      text += format("{:<8}{}  {}{}\n", values == &facts.inputs ? "input" : "output", value.name, value.kind,
                     dtype_of(value) ? " [" + base::join(value.sizes, ", ") + "]" : "");
  for (const auto& [name, range] : facts.sizes) {
    const auto least = range.first <= 1 ? "any size" : format("{} or more", range.first);
    text +=
        format("{:<8}{}: {}\n", "size", name,
               json["sizes"][name]["most"].is_null() ? least : format("{} to {}", range.first, range.second));
  }
  std::vector<std::string> operators;
  for (const auto& [name, count] : facts.operators) operators.push_back(format("{} {}", name, count));
  text += "operators: " + base::join(operators, ", ") + "\n";
  for (const auto& note : facts.notes) text += "note: " + note + "\n";
  return text;
}

// A forward and a backward: of inputs made up for it, or of a sample's.

int64_t size_for(const std::string& size, const ExportedFacts& facts) {
  constexpr int64_t made_up = 2;
  int64_t number = 0;
  const auto* end = size.data() + size.size();
  if (std::from_chars(size.data(), end, number).ptr == end) return number;
  if (const auto range = facts.sizes.find(size); range != facts.sizes.end())
    return std::min(std::max(made_up, range->second.first), range->second.second);
  throw InputError("cannot generate an input for the model: one of its sizes is " + size, "--against",
                   "pass inputs that fit; `lockstep model template --sample` shows how Python writes them");
}

// Random where numbers are real, else 0.
std::vector<c10::IValue> made_up_inputs(const ExportedFacts& facts) {
  torch::manual_seed(0);
  std::vector<c10::IValue> inputs;
  for (const auto& input : facts.inputs) {
    const auto dtype = dtype_of(input);
    if (!dtype) {
      inputs.push_back(input.kind == "int" ? c10::IValue(2) : c10::IValue());
      continue;
    }
    std::vector<int64_t> sizes;
    for (const auto& size : input.sizes) sizes.push_back(size_for(size, facts));
    if (at::isComplexType(*dtype))
      inputs.emplace_back(at::randn(sizes, *dtype));
    else
      inputs.emplace_back(at::isFloatingType(*dtype) ? at::randn(sizes).to(*dtype)
                                                     : at::zeros(sizes, *dtype));
  }
  return inputs;
}

// Forward, and backward of the sum of the outputs' mean squares, as the script of `model template --sample`.
std::vector<c10::IValue> forward_and_backward(ExportedNet& net, const std::vector<c10::IValue>& inputs) {
  std::vector<c10::IValue> copies;  // a model may change its inputs in place
  for (const auto& input : inputs)
    copies.push_back(input.isTensor() ? c10::IValue(input.toTensor().clone()) : input);
  net.zero_grad();
  torch::manual_seed(0);
  auto outputs = net.run(std::move(copies));
  at::Tensor sum;
  for (const auto& output : outputs) {
    if (!output.isTensor() || !at::isFloatingType(output.toTensor().scalar_type())) continue;
    const auto part = output.toTensor().to(at::kFloat).square().mean();
    sum = sum.defined() ? sum + part : part;
  }
  if (sum.defined() && sum.requires_grad()) sum.backward();
  return outputs;
}

// Where libtorch or the interpreter refuses the graph, the file is to blame.
std::vector<c10::IValue> try_pass(const char* mode, ExportedNet& net, const std::vector<c10::IValue>& inputs,
                                  const std::string& path) {
  try {
    return forward_and_backward(net, inputs);
  } catch (const InputError&) {
    throw;
  } catch (const std::exception& error) {
    const bool refuses = dynamic_cast<const c10::Error*>(&error) || dynamic_cast<const Error*>(&error);
    if (!refuses || base::is_out_of_memory(error)) throw;
    const auto fault = fault_of(error);
    throw InputError(format("{}: {}", mode, fault.what), path, fault.hint);
  }
}

// Which parameters the last backward reached.
Json reached(const ExportedNet& net) {
  int64_t trained = 0;
  std::vector<std::string> without_gradient;
  for (const auto& entry : net.named_parameters()) {
    if (!entry.value().requires_grad()) continue;
    ++trained;
    if (!entry.value().grad().defined()) without_gradient.push_back(entry.key());
  }
  return {{"trained", trained}, {"without_gradient", without_gradient}};
}

std::string pass_words(const char* mode, const Json& reached) {
  const auto missing = reached["without_gradient"].get<std::vector<std::string>>();
  const auto all = base::counted(reached["trained"].get<int64_t>(), "parameter");
  return format("{}: forward and backward succeeded; {}\n", mode,
                missing.empty()
                    ? all + " got a gradient"
                    : format("{} of {} got no gradient: {}", missing.size(), all, base::join(missing, ", ")));
}

// Python's numbers beside those computed here.

constexpr std::string_view kGradientStart = "grad.";
constexpr const char* kWriteAgain =
    "create one with the script that `lockstep model template --sample` prints";
constexpr const char* kToleranceWords =
    "tolerance: 1e-4 of a tensor's largest value + 1e-6; half precision: 1e-2 and 1e-3";
constexpr const char* kLostBackward =
    "gradients differ although outputs agree: torch.export silently drops the backward of a custom "
    "autograd.Function and gradient hooks; write that part with torch's operators\n";

double allowed(at::ScalarType dtype, double largest) {
  if (dtype == at::kHalf || dtype == at::kBFloat16) return 1e-2 * largest + 1e-3;
  return at::isFloatingType(dtype) || at::isComplexType(dtype) ? 1e-4 * largest + 1e-6 : 0;
}

at::Tensor plain(const at::Tensor& tensor) {
  const auto own = tensor.detach().contiguous();
  return own.is_complex() ? at::view_as_real(own.resolve_conj()) : own;
}

double largest_of(const at::Tensor& numbers) {
  return numbers.numel() == 0 ? 0 : numbers.max().item<double>();
}

std::string kind_of(const at::Tensor& tensor) {
  return format("{} {}", c10::toString(tensor.scalar_type()), c10::str(tensor.sizes()));
}

Json compare(const std::string& name, const at::Tensor& here, const at::Tensor& there) {
  Json one = {{"name", name},     {"agrees", false}, {"same_bits", false},
              {"difference", 0.}, {"largest", 0.},   {"words", ""}};
  if (here.sizes() != there.sizes() || here.scalar_type() != there.scalar_type()) {
    one["words"] = format("{} here, {} in Python", kind_of(here), kind_of(there));
    return one;
  }
  const auto ours = plain(here), theirs = plain(there);
  const bool same_bits =
      ours.nbytes() == 0 || std::memcmp(ours.const_data_ptr(), theirs.const_data_ptr(), ours.nbytes()) == 0;
  const auto x = ours.to(at::kDouble), y = theirs.to(at::kDouble);
  const double largest = largest_of(y.nan_to_num(0.0, 0.0, 0.0).abs());
  // where both are NaN, or the same infinity, there is no difference
  const auto same = x.eq(y).logical_or(x.isnan().logical_and(y.isnan()));
  const double difference = largest_of((x - y).abs().masked_fill(same, 0.0));
  const bool agrees = difference <= allowed(there.scalar_type(), largest);
  one["agrees"] = agrees, one["same_bits"] = same_bits;
  one["difference"] = difference, one["largest"] = largest;
  one["words"] = same_bits ? "the same bits"
                           : format("differs, at most {:.2g} (of {:.2g}): {}", difference, largest,
                                    agrees ? "within the tolerance" : "too much");
  return one;
}

// A tied parameter goes by any of its names.
std::map<std::string, at::Tensor> parameters_of(const ExportedNet& net) {
  std::map<std::string, at::Tensor> all;
  for (const auto& entry : net.named_parameters()) all.emplace(entry.key(), entry.value());
  for (const auto& [second, first] : net.tied())
    if (const auto found = all.find(first); found != all.end()) all.emplace(second, found->second);
  return all;
}

// What the script of `lockstep model template --sample` leaves: "input.0", "output.0", "grad.fc.weight".
class Sample {
 public:
  Sample(const std::string& path, const ExportedFacts& facts)
      : path_(path), tree_(read_checkpoint_file(path)) {
    for (size_t i = 0; i < facts.inputs.size(); ++i) {
      const auto given = tensor(format("input.{}", i));
      if (!given && dtype_of(facts.inputs[i]))
        throw InputError(format("the sample has no input.{}, the model's input {}", i, facts.inputs[i].name),
                         path, kWriteAgain);
      inputs.push_back(given ? c10::IValue(*given) : c10::IValue());
    }
  }

  // After a forward and a backward from its inputs.
  Json compare_with(const ExportedNet& net, const std::vector<c10::IValue>& made) const {
    auto outputs = Json::array(), gradients = Json::array();
    for (size_t i = 0; i < made.size(); ++i) {
      const auto name = format("output.{}", i);
      if (const auto there = tensor(name); there && made[i].isTensor())
        outputs.push_back(compare(name, made[i].toTensor(), *there));
    }
    if (outputs.empty())
      throw InputError("the sample has no output.0: there is nothing to compare", path_, kWriteAgain);
    compare_gradients(net, gradients);
    const auto agree = [](const Json& all) {
      return std::all_of(all.begin(), all.end(), [](const Json& one) { return one["agrees"].get<bool>(); });
    };
    const bool agrees = agree(outputs) && agree(gradients), lost = agree(outputs) && !agree(gradients);
    outputs.insert(outputs.end(), gradients.begin(), gradients.end());
    return {{"sample", path_}, {"agrees", agrees}, {"lost_backward", lost}, {"tensors", outputs}};
  }

  std::vector<c10::IValue> inputs;  // a leaf each

 private:
  std::optional<at::Tensor> tensor(const std::string& name) const {
    const auto found = find(tree_, name);
    return found ? std::optional(as_tensor(*found, name)) : std::nullopt;
  }

  void compare_gradients(const ExportedNet& net, Json& all) const {
    const auto parameters = parameters_of(net);
    std::set<at::TensorImpl*> compared;
    for (const auto& [key, value] : items(tree_)) {
      const auto name = as_string(key, "a name in the sample");
      if (!name.starts_with(kGradientStart)) continue;
      const auto found = parameters.find(name.substr(kGradientStart.size()));
      if (found == parameters.end())
        throw InputError(
            format("the sample has {}, but the model has no such parameter", base::printable(name)), path_,
            "check that it is a sample of this model, or " + std::string(kWriteAgain));
      const auto& parameter = found->second;
      compared.insert(parameter.unsafeGetTensorImpl());
      const auto gradient = parameter.grad().defined() ? parameter.grad() : at::zeros_like(parameter);
      all.push_back(compare(name, gradient, as_tensor(value, name)));
    }
    if (compared.empty()) return;
    for (const auto& entry : net.named_parameters()) {  // Python's backward gave these none
      const auto& parameter = entry.value();
      if (compared.contains(parameter.unsafeGetTensorImpl()) || !parameter.grad().defined()) continue;
      all.push_back(
          compare(std::string(kGradientStart) + entry.key(), parameter.grad(), at::zeros_like(parameter)));
    }
  }

  std::string path_;
  Tree tree_;
};

std::string comparison_words(const Json& comparison) {
  std::string text;
  int64_t same = 0;
  for (const auto& one : comparison["tensors"]) {
    const auto name = one["name"].get<std::string>();
    const bool counts = name.starts_with(kGradientStart) && one["same_bits"].get<bool>();
    if (counts)
      ++same;
    else
      text += format("{}: {}\n", name, one["words"].get<std::string>());
  }
  if (same > 0) text += base::counted(same, "gradient") + ": the same bits\n";
  if (comparison["lost_backward"].get<bool>()) text += kLostBackward;
  return text + format("{} {} ({})\n",
                       comparison["agrees"].get<bool>() ? "agrees with" : "does not agree with",
                       comparison["sample"].get<std::string>(), kToleranceWords);
}

// Adds to `all` what it finds, and prints it at once for people.
int check(const ModelCheck& asked, Json& all) {
  const auto say = [&](const std::string& lines) {
    if (!asked.json) output::print(base::readable(lines));
  };
  const auto net = load_exported(asked.path, asked.eval_path);
  all = facts_json(*net, asked.path);
  say(facts_words(*net, all));
  std::optional<Sample> sample;
  if (!asked.sample.empty()) sample.emplace(asked.sample, net->facts());
  const auto inputs = sample ? sample->inputs : made_up_inputs(net->facts());
  for (const bool training : {true, false}) {
    const char* mode = training ? "train" : "eval";
    net->train(training);
    const auto outputs =
        try_pass(mode, *net, inputs, training || asked.eval_path.empty() ? asked.path : asked.eval_path);
    all[mode] = reached(*net);
    say(pass_words(mode, all[mode]));
    if (!training || !sample) continue;
    all["against"] = sample->compare_with(*net, outputs);
    say(comparison_words(all["against"]));
  }
  return sample && !all["against"]["agrees"].get<bool>() ? kFailed : kDone;
}

}  // namespace

int check_model(const ModelCheck& asked) {
  Json all = {{"schema", 1}, {"file", asked.path}};
  const auto print = [&] {
    if (asked.json) output::print(base::as_lines(all));
  };
  try {
    const int status = check(asked, all);
    print();
    output::check();
    return status;
  } catch (const std::exception& error) {  // main prints it for people
    all["error"] = Json::parse(launch::fault_as_json(error));
    print();
    throw;
  }
}

InspectedModel inspect_exported(const std::string& path, const checkpoint::Digest& digest) {
  const auto net = load_exported(path);
  InspectedModel model{.file = {.format = "pt2",
                                .file_bytes = std::filesystem::file_size(path),
                                .checksum = Checksum::each_record,
                                .entries = {}},
                       .words = {},
                       .facts = facts_json(*net, path)};
  model.words = facts_words(*net, model.facts);
  for (const auto& [name, value] : items(module_state_dict(*net)))
    model.file.entries.push_back(checkpoint::inspect_tensor(name.toStringRef(), value.toTensor(), digest));
  return model;
}

}  // namespace lockstep::model_check
