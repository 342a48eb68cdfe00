#include "tools/model_check/check.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/base/memory.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/pt.h"
#include "lockstep/launch/process/report.h"

namespace lockstep::model_check {
namespace {

constexpr int64_t kMadeUpSize = 2;

int64_t size_for(const std::string& size, const ExportedFacts& facts) {
  int64_t number = 0;
  const auto* end = size.data() + size.size();
  if (std::from_chars(size.data(), end, number).ptr == end) return number;
  if (const auto range = facts.sizes.find(size); range != facts.sizes.end())
    return std::min(std::max(kMadeUpSize, range->second.first), range->second.second);
  throw InputError("no input can be made up for the model: one of its sizes is " + size, "--against",
                   "give inputs that fit: `lockstep model template --sample` shows how Python writes them");
}

c10::IValue made_up(const ExportedValue& input, const ExportedFacts& facts) {
  const auto dtype = dtype_of(input);
  if (!dtype) return input.kind == "int" ? c10::IValue(kMadeUpSize) : c10::IValue();
  std::vector<int64_t> sizes;
  for (const auto& size : input.sizes) sizes.push_back(size_for(size, facts));
  if (at::isComplexType(*dtype)) return at::randn(sizes, *dtype);
  return at::isFloatingType(*dtype) ? at::randn(sizes).to(*dtype) : at::zeros(sizes, *dtype);
}

at::Tensor sum_of_squares(const std::vector<c10::IValue>& outputs) {
  at::Tensor sum;
  for (const auto& output : outputs) {
    if (!output.isTensor() || !at::isFloatingType(output.toTensor().scalar_type())) continue;
    const auto part = output.toTensor().to(at::kFloat).square().mean();
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

}  // namespace

std::optional<at::ScalarType> dtype_of(const ExportedValue& value) {
  const auto& known = c10::getStringToDtypeMap();
  const auto found = known.find(value.kind);
  // a kind of Python's own is called like an old name of torch's: "int" is int32 there
  if (found == known.end() || c10::getDtypeNames(found->second).first != value.kind) return std::nullopt;
  return found->second;
}

std::vector<c10::IValue> made_up_inputs(const ExportedFacts& facts) {
  torch::manual_seed(0);
  std::vector<c10::IValue> inputs;
  for (const auto& input : facts.inputs) inputs.push_back(made_up(input, facts));
  return inputs;
}

std::vector<c10::IValue> try_model(ExportedNet& net, std::vector<c10::IValue> inputs) {
  net.zero_grad();
  torch::manual_seed(0);
  auto outputs = net.run(std::move(inputs));
  if (const auto sum = sum_of_squares(outputs); sum.defined() && sum.requires_grad()) sum.backward();
  return outputs;
}

Reached reached(const ExportedNet& net) {
  Reached found;
  for (const auto& entry : net.named_parameters()) {
    if (!entry.value().requires_grad()) continue;
    ++found.trained;
    if (!entry.value().grad().defined()) found.without_gradient.push_back(entry.key());
  }
  return found;
}

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

namespace {

constexpr std::string_view kOutputStart = "output.", kGradientStart = "grad.";
constexpr const char* kWriteAgain = "`lockstep model template --sample` prints the Python that writes one";

struct Tolerance {
  double of_largest, least;
};

Tolerance tolerance_of(at::ScalarType dtype) {
  if (dtype == at::kHalf || dtype == at::kBFloat16) return {1e-2, 1e-3};
  if (at::isFloatingType(dtype) || at::isComplexType(dtype)) return {1e-4, 1e-6};
  return {0, 0};
}

at::Tensor plain(const at::Tensor& tensor) {
  const auto own = tensor.detach().contiguous();
  return own.is_complex() ? at::view_as_real(own.resolve_conj()) : own;
}

bool have_same_bits(const at::Tensor& here, const at::Tensor& there) {
  return here.nbytes() == 0 || std::memcmp(here.const_data_ptr(), there.const_data_ptr(), here.nbytes()) == 0;
}

double largest_of(const at::Tensor& numbers) {
  return numbers.numel() == 0 ? 0 : numbers.max().item<double>();
}

/// Where both are NaN, or the same infinity, there is no difference.
double difference_of(const at::Tensor& here, const at::Tensor& there) {
  const auto same = here.eq(there).logical_or(here.isnan().logical_and(there.isnan()));
  return largest_of((here - there).abs().masked_fill(same, 0.0));
}

std::string kind_of(const at::Tensor& tensor) {
  return format("{} {}", c10::toString(tensor.scalar_type()), c10::str(tensor.sizes()));
}

Compared compare(const std::string& name, const at::Tensor& here, const at::Tensor& there) {
  Compared one{.name = name};
  if (here.sizes() != there.sizes() || here.scalar_type() != there.scalar_type()) {
    one.words = format("{} here, {} in Python", kind_of(here), kind_of(there));
    return one;
  }
  const auto ours = plain(here), theirs = plain(there);
  one.same_bits = have_same_bits(ours, theirs);
  const auto numbers = theirs.to(at::kDouble);
  one.largest = largest_of(numbers.nan_to_num(0.0, 0.0, 0.0).abs());
  one.difference = difference_of(ours.to(at::kDouble), numbers);
  const auto [of_largest, least] = tolerance_of(there.scalar_type());
  one.agrees = one.difference <= of_largest * one.largest + least;
  one.words = one.same_bits ? "the same bits"
                            : format("differs, at most {:.2g} (of {:.2g}): {}", one.difference, one.largest,
                                     one.agrees ? "within the tolerance" : "too much");
  return one;
}

bool is_zero(const at::Tensor& tensor) {
  return !tensor.defined() || !tensor.detach().to(at::kBool).any().item<bool>();
}

Compared compare_gradient(const std::string& name, const at::Tensor& here, const at::Tensor& there) {
  const bool none_here = is_zero(here);
  if (none_here && !here.defined() && is_zero(there))
    return {.name = name, .words = "none here, 0 in Python", .agrees = true};
  auto one = compare(name, here.defined() ? here : at::zeros_like(there), there);
  one.is_lost = none_here && !one.agrees;
  if (one.is_lost)
    one.words = format("{} here, up to {:.2g} in Python", here.defined() ? "0" : "none", one.largest);
  return one;
}

/// The number of "output.3"; InputError for what is none of the model's.
size_t number_of(const std::string& name, size_t count, const std::string& path) {
  size_t number = 0;
  const auto* end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + kOutputStart.size(), end, number);
  if (read.ec == std::errc() && read.ptr == end && number < count) return number;
  throw InputError(format("the sample holds {}, and the model gives {} output{}", base::printable(name),
                          count, count == 1 ? "" : "s"),
                   path, kWriteAgain);
}

std::vector<c10::IValue> inputs_in(const Tree& tree, const ExportedFacts& facts, const std::string& path) {
  std::vector<c10::IValue> inputs;
  for (size_t i = 0; i < facts.inputs.size(); ++i) {
    const auto name = format("input.{}", i);
    const auto found = find(tree, name);
    if (dtype_of(facts.inputs[i]) && !found)
      throw InputError(format("the sample lacks {}: the model's input {}", name, facts.inputs[i].name), path,
                       kWriteAgain);
    inputs.push_back(found ? c10::IValue(as_tensor(*found, name)) : c10::IValue());
  }
  return inputs;
}

/// A tied parameter goes by any of its names.
std::map<std::string, at::Tensor> parameters_of(const ExportedNet& net) {
  std::map<std::string, at::Tensor> all;
  for (const auto& entry : net.named_parameters()) all.emplace(entry.key(), entry.value());
  for (const auto& [second, first] : net.tied()) {
    if (const auto found = all.find(first); found != all.end()) all.emplace(second, found->second);
  }
  return all;
}

void check_gradients(const ModelSample::Named& gradients, const ExportedNet& net, const std::string& path) {
  const auto parameters = parameters_of(net);
  for (const auto& [name, gradient] : gradients) {
    if (parameters.contains(name.substr(kGradientStart.size()))) continue;
    throw InputError(
        format("the sample holds {}, and the model has no such parameter", base::printable(name)), path,
        "was it written with another model? " + std::string(kWriteAgain));
  }
}

/// Those here of parameters to which Python's backward gave none.
void add_unexpected(const ExportedNet& net, const std::set<at::TensorImpl*>& expected,
                    std::vector<Compared>& all) {
  for (const auto& entry : net.named_parameters()) {
    const auto& parameter = entry.value();
    if (expected.contains(parameter.unsafeGetTensorImpl()) || is_zero(parameter.grad())) continue;
    all.push_back({.name = std::string(kGradientStart) + entry.key(), .words = "none in Python"});
  }
}

std::vector<Compared> compare_gradients(const ModelSample::Named& gradients, const ExportedNet& net) {
  const auto parameters = parameters_of(net);
  std::set<at::TensorImpl*> expected;
  std::vector<Compared> all;
  for (const auto& [name, there] : gradients) {
    const auto& parameter = parameters.at(name.substr(kGradientStart.size()));
    expected.insert(parameter.unsafeGetTensorImpl());
    all.push_back(compare_gradient(name, parameter.grad(), there));
  }
  if (!gradients.empty()) add_unexpected(net, expected, all);
  return all;
}

bool all_agree(const std::vector<Compared>& all) {
  return std::all_of(all.begin(), all.end(), [](const Compared& one) { return one.agrees; });
}

}  // namespace

bool Comparison::agrees() const {
  return all_agree(outputs) && all_agree(gradients);
}

bool Comparison::lost_backward() const {
  const bool some_lost =
      std::any_of(gradients.begin(), gradients.end(), [](const Compared& one) { return one.is_lost; });
  return some_lost || (all_agree(outputs) && !all_agree(gradients));
}

ModelSample read_model_sample(const std::string& path, const ExportedNet& net) {
  const auto tree = read_checkpoint_file(path);
  ModelSample sample{.inputs = inputs_in(tree, net.facts(), path)};
  for (const auto& [key, value] : items(tree)) {
    const auto& name = as_string(key, "a name in the sample");
    if (name.starts_with(kOutputStart)) {
      number_of(name, net.facts().outputs.size(), path);
      sample.outputs.emplace_back(name, as_tensor(value, name));
    } else if (name.starts_with(kGradientStart)) {
      sample.gradients.emplace_back(name, as_tensor(value, name));
    }
  }
  check_gradients(sample.gradients, net, path);
  if (!sample.outputs.empty()) return sample;
  throw InputError("the sample holds no output.0: there is nothing to compare", path, kWriteAgain);
}

Comparison compare_with_python(const ModelSample& sample, const ExportedNet& net,
                               const std::vector<c10::IValue>& outputs) {
  Comparison comparison;
  for (const auto& [name, there] : sample.outputs) {
    const auto& here = outputs.at(number_of(name, outputs.size(), name));
    comparison.outputs.push_back(here.isTensor() ? compare(name, here.toTensor(), there)
                                                 : Compared{.name = name, .words = "no tensor here"});
  }
  comparison.gradients = compare_gradients(sample.gradients, net);
  return comparison;
}

namespace {

/// Says what it finds at once, or at the end, as one JSON object.
class CheckReport {
 public:
  CheckReport(bool json, const std::string& path)
      : json_(json), all_(OrderedJson::object({{"schema", 1}, {"file", path}})) {}

  void facts(const ExportedNet& net, const std::string& path) {
    if (json_) all_ = facts_json(net, path);
    say(facts_words(net, path));
  }
  void pass(const char* mode, const Reached& reached) {
    all_[mode] = {{"trained", reached.trained}, {"without_gradient", reached.without_gradient}};
    say(pass_words(mode, reached));
  }
  void comparison(const Comparison& comparison, const std::string& sample) {
    all_["against"] = comparison_json(comparison, sample);
    say(comparison_words(comparison, sample));
  }
  /// To people main says it.
  void failed(const std::exception& error) {
    all_["error"] = OrderedJson::parse(launch::fault_as_json(error));
    if (json_) print();
  }
  void end() const {
    if (json_) print();
    output::check();
  }

 private:
  void print() const {
    output::print(all_.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
  }
  void say(const std::string& lines) const {
    if (!json_) output::print(base::readable(lines));
  }

  bool json_;
  OrderedJson all_;
};

/// Of their own for each pass: a model may change them in place.
std::vector<c10::IValue> copies_of(const std::vector<c10::IValue>& inputs) {
  std::vector<c10::IValue> copies;
  for (const auto& input : inputs)
    copies.push_back(input.isTensor() ? c10::IValue(input.toTensor().clone()) : input);
  return copies;
}

/// What the pass gives. Where libtorch or the interpreter refuses it, the file is to blame.
std::vector<c10::IValue> pass(const char* mode, ExportedNet& net, const std::vector<c10::IValue>& inputs,
                              const std::string& path) {
  try {
    return try_model(net, copies_of(inputs));
  } catch (const InputError&) {
    throw;
  } catch (const std::exception& error) {
    const bool refuses = dynamic_cast<const c10::Error*>(&error) || dynamic_cast<const Error*>(&error);
    if (!refuses || base::is_out_of_memory(error)) throw;
    const auto fault = fault_of(error);
    throw InputError(format("{}: {}", mode, fault.what), path, fault.hint);
  }
}

int check_and_tell(const ModelCheck& asked, CheckReport& report) {
  const auto net = load_exported(asked.path, asked.eval_path);
  report.facts(*net, asked.path);
  const bool compares = !asked.sample.empty();
  const auto sample =
      compares ? read_model_sample(asked.sample, *net) : ModelSample{.inputs = made_up_inputs(net->facts())};
  bool agrees = true;
  net->train();
  const auto outputs = pass("train", *net, sample.inputs, asked.path);
  report.pass("train", reached(*net));
  if (compares) {
    const auto comparison = compare_with_python(sample, *net, outputs);
    agrees = comparison.agrees();
    report.comparison(comparison, asked.sample);
  }
  net->eval();
  pass("eval", *net, sample.inputs, asked.eval_path.empty() ? asked.path : asked.eval_path);
  report.pass("eval", reached(*net));
  return agrees ? kDone : kFailed;
}

}  // namespace

int check_model(const ModelCheck& asked) {
  CheckReport report(asked.json, asked.path);
  int status = kDone;
  try {
    status = check_and_tell(asked, report);
  } catch (const std::exception& error) {
    report.failed(error);
    throw;
  }
  report.end();
  return status;
}

}  // namespace lockstep::model_check
