#include "tools/model_check/template.h"

#include <algorithm>
#include <cctype>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::model_check {
namespace {

constexpr size_t kMostDigits = 9;   // of a size
constexpr const char* kFree = "?";  // a size that may change
constexpr const char* kDefaultInput = "float32:1x28x28";

constexpr const char* kExport =
    R"(# Writes FILE.pt2, which lockstep trains without Python.
import torch

from my_model import Model  # change this to your model

torch.manual_seed(0)
model = Model()  # change this to how it is made; training begins with the weights that it has now
args = (  # what forward takes: a batch of 4
INPUTS)
free = torch.export.Dim.AUTO  # a size that may change
sizes = (FREE)  # of each argument the dimensions that may change: 0 is the batch

torch.export.save(torch.export.export(model.train(), args, dynamic_shapes=sizes), "FILE.pt2")
)";

constexpr const char* kEval =
    R"(# for evaluation, as model.eval_path: forward may do something else there
torch.export.save(torch.export.export(model.eval(), args, dynamic_shapes=sizes), "FILE.eval.pt2")
)";

constexpr const char* kSampleOf =
    R"(
# Does C++ compute the same? lockstep model check FILE.pt2 --against FILE.sample.safetensors
import safetensors.torch

leaves = torch.utils._pytree.tree_leaves
sample = {f"input.{i}": value.clone() for i, value in enumerate(leaves(args))}
torch.manual_seed(0)
out = leaves(model.train()(*args))
sum(o.float().square().mean() for o in out if torch.is_tensor(o) and o.is_floating_point()).backward()
sample |= {f"output.{i}": value for i, value in enumerate(out)}
sample |= {f"grad.{name}": parameter.grad for name, parameter in model.named_parameters()}
sample = {name: t.detach().contiguous().clone() for name, t in sample.items() if torch.is_tensor(t)}
safetensors.torch.save_file(sample, "FILE.sample.safetensors")
)";

/// How Python makes a tensor of a dtype: before its sizes, after them.
struct Making {
  const char* dtype;
  const char* before;
  const char* after;
};
constexpr Making kMakings[] = {
    {"float32", "torch.randn((", "))"},
    {"float64", "torch.randn((", "), dtype=torch.float64)"},
    {"float16", "torch.randn((", "), dtype=torch.float16)"},
    {"bfloat16", "torch.randn((", "), dtype=torch.bfloat16)"},
    {"int64", "torch.randint(2, (", "))"},
    {"int32", "torch.randint(2, (", "), dtype=torch.int32)"},
    {"uint8", "torch.randint(2, (", "), dtype=torch.uint8)"},
    {"bool", "torch.rand((", ")) < 0.5"},
};

const Making& making_of(const std::string& dtype, const std::string& input) {
  const auto* found = std::find_if(std::begin(kMakings), std::end(kMakings),
                                   [&](const Making& making) { return making.dtype == dtype; });
  if (found != std::end(kMakings)) return *found;
  std::vector<std::string> known;
  for (const auto& making : kMakings) known.emplace_back(making.dtype);
  const auto near = base::nearest(dtype, known);
  throw InputError(format("unknown dtype '{}'", base::printable(dtype)), "--input " + base::printable(input),
                   near ? format("did you mean {}?", *near) : "choose one of " + base::join(known, ", "));
}

bool is_size(const std::string& text) {
  return !text.empty() && text.size() <= kMostDigits && text[0] != '0' &&
         std::all_of(text.begin(), text.end(), [](unsigned char sign) { return std::isdigit(sign) != 0; });
}

/// "1x28" becomes {"1", "28"}; "?" is a size that may change.
std::vector<std::string> sizes_of(const std::string& input) {
  std::vector<std::string> sizes;
  const auto colon = input.find(':');
  if (colon >= input.size() - 1) return sizes;  // one number a sample
  for (size_t begin = colon + 1; begin <= input.size();) {
    const auto end = std::min(input.find('x', begin), input.size());
    sizes.push_back(input.substr(begin, end - begin));
    begin = end + 1;
    if (sizes.back() == kFree || is_size(sizes.back())) continue;
    throw InputError(
        format("'{}' is no size", base::printable(sizes.back())), "--input " + base::printable(input),
        "give the sizes of one sample, without the batch: --input float32:3x224x224; ? is one that "
        "may change");
  }
  return sizes;
}

/// "float32:1x28x28" as the line of Python that makes a batch of it.
std::string line_of(const std::string& input) {
  const auto& making = making_of(input.substr(0, input.find(':')), input);
  std::string batch = "4";
  const auto sizes = sizes_of(input);
  for (const auto& size : sizes) batch += ", " + (size == kFree ? std::string("5") : size);
  if (sizes.empty()) batch += ",";
  return std::string("    ") + making.before + batch + making.after + ",\n";
}

/// The dimensions of it that may have any size: "{0: free, 2: free}"
std::string free_of(const std::string& input) {
  std::string text = "{0: free";
  const auto sizes = sizes_of(input);
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] == kFree) text += format(", {}: free", i + 1);
  return text + "},";
}

std::string each(const std::vector<std::string>& inputs, const char* between,
                 std::string (*made)(const std::string&)) {
  std::vector<std::string> parts;
  for (const auto& input : inputs) parts.push_back(made(input));
  return base::join(parts, between);
}

/// Without its ending; it is put in Python's quotes, and in a comment.
std::string file_stem(const std::string& output) {
  const bool plain = std::none_of(output.begin(), output.end(), [](unsigned char sign) {
    return sign == '"' || sign == '\\' || sign < ' ';
  });
  const auto stem = output.ends_with(".pt2") ? output.substr(0, output.size() - 4) : output;
  if (plain && !stem.empty()) return stem;
  throw InputError("a file's name without quotes and backslashes is wanted",
                   "--output " + base::printable(output), "lockstep model template --output model.pt2");
}

std::string replaced(std::string text, const std::string& word, const std::string& by) {
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + by.size()))
    text.replace(at, word.size(), by);
  return text;
}

}  // namespace

std::string export_script(const TemplateOptions& asked) {
  const auto inputs = asked.inputs.empty() ? std::vector<std::string>{kDefaultInput} : asked.inputs;
  auto text =
      replaced(replaced(kExport, "INPUTS", each(inputs, "", line_of)), "FREE", each(inputs, " ", free_of));
  if (asked.eval) text += kEval;
  if (asked.sample) text += kSampleOf;
  return replaced(text, "FILE", file_stem(asked.output));
}

}  // namespace lockstep::model_check
