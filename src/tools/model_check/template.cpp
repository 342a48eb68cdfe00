// The Python that exports a model, for its reader's own.
#include <regex>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"
#include "tools/model_check/model_check.h"

namespace lockstep::model_check {
namespace {

constexpr const char* kExport =
    R"(# Writes FILE.pt2, which lockstep trains without Python.
import torch

from my_model import Model  # change this to your model

torch.manual_seed(0)
model = Model()  # change this to create your model; training starts from its current weights
args = (  # the arguments of forward, for a batch of 4
INPUTS)
free = torch.export.Dim.AUTO  # a size that may change
sizes = (FREE)  # for each argument, the dimensions that may change: 0 is the batch

torch.export.save(torch.export.export(model.train(), args, dynamic_shapes=sizes), "FILE.pt2")
)";

constexpr const char* kEval =
    R"(# for evaluation, as model.eval_path: forward may differ there
torch.export.save(torch.export.export(model.eval(), args, dynamic_shapes=sizes), "FILE.eval.pt2")
)";

constexpr const char* kSampleOf =
    R"(
# Does C++ compute the same? lockstep model check FILE.pt2 --against FILE.sample.pt
leaves = torch.utils._pytree.tree_leaves
sample = {f"input.{i}": value.clone() for i, value in enumerate(leaves(args))}
torch.manual_seed(0)
out = leaves(model.train()(*args))
sum(o.float().square().mean() for o in out if torch.is_tensor(o) and o.is_floating_point()).backward()
sample |= {f"output.{i}": value for i, value in enumerate(out)}
sample |= {f"grad.{name}": parameter.grad for name, parameter in model.named_parameters()}
sample = {name: t.detach().contiguous().clone() for name, t in sample.items() if torch.is_tensor(t)}
torch.save(sample, "FILE.sample.pt")
)";

// "float32:1x28x28": the line of Python that makes a batch of it, and the dimensions that may change.
struct Input {
  std::string line, free = "{0: free";
};

Input input_of(const std::string& text) {
  static const std::regex form(
      R"((?:(float(?:16|32|64)|bfloat16)|(u?int8|int16|int32|int64|bool))(?::((?:\?|[1-9]\d{0,8})(?:x(?:\?|[1-9]\d{0,8}))*))?)");
  std::smatch parts;
  if (!std::regex_match(text, parts, form))
    throw InputError(format("'{}' is not DTYPE:SIZES", base::printable(text)), "--input",
                     "give a dtype and the sizes of one sample, without the batch: float32:3x224x224; "
                     "? is a size that may change: int64:?");
  Input input;
  std::string sizes = "4,";  // the batch
  int dimension = 0;
  for (const auto& size : base::split(parts[3].str(), 'x')) {
    ++dimension;
    const bool may_change = size == "?";
    sizes += (dimension == 1 ? " " : ", ") + (may_change ? "5" : size);
    if (may_change) input.free += format(", {}: free", dimension);
  }
  input.line = parts[1].matched ? format("    torch.randn(({}), dtype=torch.{}),\n", sizes, parts[1].str())
                                : format("    torch.randint(2, ({})).to(torch.{}),\n", sizes, parts[2].str());
  input.free += "},";
  return input;
}

std::string replaced(std::string text, const std::string& word, const std::string& by) {
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + by.size()))
    text.replace(at, word.size(), by);
  return text;
}

}  // namespace

std::string export_script(const TemplateOptions& asked) {
  std::string lines, free;
  for (const auto& text : asked.inputs.empty() ? std::vector<std::string>{"float32:1x28x28"} : asked.inputs) {
    const auto input = input_of(text);
    lines += input.line;
    free += (free.empty() ? "" : " ") + input.free;
  }
  if (asked.output.find_first_of("\"\\\n") != std::string::npos)
    throw InputError("the file name cannot contain quotes or backslashes",
                     "--output " + base::printable(asked.output),
                     "lockstep model template --output model.pt2");
  auto script = replaced(replaced(kExport, "INPUTS", lines), "FREE", free);
  if (asked.eval) script += kEval;
  if (asked.sample) script += kSampleOf;
  const auto stem =
      asked.output.ends_with(".pt2") ? asked.output.substr(0, asked.output.size() - 4) : asked.output;
  return replaced(script, "FILE", stem);
}

}  // namespace lockstep::model_check
