#include "lockstep/models/exported.h"

#include <c10/core/ScalarType.h>
#include <torch/types.h>

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "lockstep/exported/program.h"
#include "lockstep/exported/weights.h"
#include "lockstep/models/model.h"

namespace lockstep {
namespace {

using exported::ExportedProgram, exported::Input;

// What an exported file says of itself, as users read it.

ExportedValue value_of(const std::string& name, const std::optional<exported::TensorMeta>& meta,
                       const std::string& otherwise) {
  ExportedValue value{.name = base::printable(name), .kind = otherwise};
  if (!meta) return value;
  value.kind = c10::getDtypeNames(meta->dtype).first;  // Python's word: c10's "Float" is float32
  for (size_t i = 0; i < meta->sizes.size(); ++i)
    value.sizes.push_back(meta->sizes[i] ? format("{}", *meta->sizes[i]) : meta->symbols[i]);
  return value;
}

// The operators that draw random numbers whatever mode the model is in, "randn_like, rand"; empty = none.
std::string draws_of(const ExportedProgram& program) {
  const auto& draws = program.calls.draws;
  return base::join({draws.begin(), draws.end()}, ", ");
}

// `has_eval`: evaluation has a graph of its own.
std::vector<std::string> notes_of(const ExportedProgram& program, bool has_eval) {
  std::vector<std::string> notes;
  if (program.is_newer)
    notes.push_back(format("it was written by torch {}, which is newer than this lockstep supports",
                           program.torch_version));
  if (program.calls.on == 0 && program.calls.off > 0)
    notes.push_back(
        "its graph has dropout and norm updates turned off, as after model.eval(); to train it, export it "
        "after model.train()");
  for (const auto& input : program.signature.inputs) {
    if (input.kind == Input::Kind::buffer && !input.saved && program.calls.changed.contains(input.argument))
      notes.push_back(
          format("forward changes the buffer {}, which Python's state_dict does not hold: a resumed run "
                 "starts with the file's value",
                 base::printable(input.name)));
  }
  if (has_eval) return notes;
  const auto draws = draws_of(program);
  notes.push_back(draws.empty()
                      ? "without model.eval_path, evaluation uses the training graph with dropout and batch "
                        "statistics turned off; `if self.training` stays as it was exported"
                      : "the model's own code draws random numbers (" + draws +
                            "): evaluation needs model.eval_path");
  return notes;
}

ExportedFacts facts_of(const ExportedProgram& program, bool has_eval) {
  ExportedFacts facts{.torch_version = program.torch_version,
                      .schema = program.schema,
                      .operators = program.calls.operators,
                      .notes = notes_of(program, has_eval)};
  for (const auto number : program.signature.given) {
    const auto& input = program.signature.inputs[number];
    facts.inputs.push_back(value_of(input.name, input.meta, input.value));
  }
  for (const auto& output : program.signature.outputs)
    facts.outputs.push_back(value_of(output.name, output.meta, output.name));
  for (const auto& [symbol, range] : program.signature.ranges)
    facts.sizes[symbol] = {range.least, range.most};
  return facts;
}

}  // namespace

using Values = std::vector<c10::IValue>;

struct ExportedNet::State {
  ExportedProgram train;
  std::optional<ExportedProgram> eval = {};
  exported::StateNames names = {};
  ExportedFacts facts = {};
  at::Tensor parameter = {};
  at::Device constants_are_on = at::kCPU;
  bool is_noted = false;

  ExportedProgram& program(bool training) { return training || !eval ? train : *eval; }

  // Parameters are moved by whoever moves the module; constants follow when it runs.
  at::Device device() {
    const auto device = parameter.device();
    if (device == constants_are_on) return device;
    exported::move_constants(train, device);
    if (eval) exported::move_constants(*eval, device);
    return constants_are_on = device;
  }
};

namespace {

// Text comes as one tensor, [n, 3, tokens].
constexpr std::array<std::string_view, 3> kTextInputs = {"input_ids", "token_type_ids", "attention_mask"};

Values with_tensors(Values given, const ExportedProgram& program) {
  const auto& signature = program.signature;
  const auto wanted = signature.given.size();
  if (given.size() != wanted)
    throw InputError(format("the exported model takes {}, but got {}",
                            base::counted(std::ssize(signature.given), "input"), given.size()),
                     program.path, "run lockstep model check to list them");
  exported::check_inputs(signature, given, program.path);
  Values inputs(program.tensors.begin(), program.tensors.end());
  for (size_t i = 0; i < given.size(); ++i) inputs[signature.given[i]] = std::move(given[i]);
  return inputs;
}

// The row of text that an input is; kTextInputs.size() if it is none.
int64_t text_row(const Input& input) {
  if (!input.meta || input.meta->sizes.size() != 2) return std::ssize(kTextInputs);
  return std::find(kTextInputs.begin(), kTextInputs.end(), input.name) - kTextInputs.begin();
}

[[noreturn]] void refuse_task(const std::string& what, const ExportedProgram& program) {
  throw InputError(
      what, program.path,
      "let forward take the task's one tensor, or for text arguments that are all called input_ids, "
      "token_type_ids or attention_mask");
}

// A task's one tensor as the inputs that the model takes; constants are as the file has them.
Values inputs_for(const at::Tensor& input, const ExportedProgram& program) {
  std::vector<const Input*> given;
  for (const auto number : program.signature.given) given.push_back(&program.signature.inputs[number]);
  const auto is_user = [](const Input* one) { return one->kind == Input::Kind::user; };
  const auto is_row = [](const Input* one) { return text_row(*one) < std::ssize(kTextInputs); };
  const auto takes = std::ranges::count_if(given, is_user);
  const bool is_text =
      input.dim() == 3 && input.size(1) == std::ssize(kTextInputs) && input.scalar_type() == at::kLong;
  const auto rows = is_text ? std::ranges::count_if(given, is_row) : 0;
  if (rows > 0 && rows < takes)
    refuse_task("only some of the exported model's inputs are rows of text", program);
  if (rows == 0 && takes != 1 && (input.dim() < 2 || input.size(1) != takes))
    refuse_task(format("the exported model takes {} inputs, and the task gives one of {}", takes,
                       c10::str(input.sizes())),
                program);
  Values values;
  int64_t next = 0;
  for (const auto* one : given) {
    auto& value = values.emplace_back();
    if (!is_user(one)) continue;
    value = rows > 0 ? input.select(1, text_row(*one)) : takes == 1 ? input : input.select(1, next++);
  }
  return values;
}

}  // namespace

ExportedNet::ExportedNet(const std::string& path, const std::string& eval_path)
    : state_(new State{.train = exported::read_program(path)}) {
  exported::bind(state_->train, *this, state_->names);
  state_->facts = facts_of(state_->train, !eval_path.empty());
  const auto all = parameters();
  if (all.empty())
    throw InputError("the exported model has no parameters to train", path, "export a model that has some");
  state_->parameter = all.front();
  if (eval_path.empty()) return;
  state_->eval = exported::read_program(eval_path);
  exported::bind_like(*state_->eval, state_->train);
}

ExportedNet::~ExportedNet() = default;

const ExportedFacts& ExportedNet::facts() const {
  return state_->facts;
}
const std::vector<std::pair<std::string, std::string>>& ExportedNet::tied() const {
  return state_->names.tied;
}
const std::vector<std::string>& ExportedNet::unsaved() const {
  return state_->names.unsaved;
}

std::string ExportedNet::graph_digest() const {
  const auto& eval = state_->eval;
  return state_->train.digest + (eval ? "/" + eval->digest : "");
}

Values ExportedNet::run(Values inputs) {
  const bool flips = !is_training() && !state_->eval;
  if (flips && !state_->train.calls.draws.empty())
    throw InputError(
        format("the exported model's own code draws random numbers ({}), perhaps not in evaluation",
               draws_of(state_->train)),
        state_->train.path, "export it again after model.eval(), and set model.eval_path to that file");
  const auto device = state_->device();
  const auto& program = state_->program(is_training());
  return exported::run(program.graph, with_tensors(std::move(inputs), program),
                       {.device = device, .home = program.home, .eval = flips});
}

torch::Tensor ExportedNet::forward(const torch::Tensor& input) {
  if (is_training() && !std::exchange(state_->is_noted, true))
    for (const auto& note : state_->facts.notes) log::info(state_->train.path + ": " + note);
  const auto& program = state_->program(is_training());
  Values tensors;
  for (auto& value : run(inputs_for(input, program)))
    if (value.isTensor()) tensors.push_back(std::move(value));
  if (tensors.size() == 1) return tensors[0].toTensor();
  throw InputError(format("the exported model returns {} tensors, but a task takes one", tensors.size()),
                   program.path, "let its forward return one tensor, and export it again");
}

std::shared_ptr<ExportedNet> load_exported(const std::string& path, const std::string& eval_path) {
  return std::make_shared<ExportedNet>(path, eval_path);
}

void save_exported(const torch::nn::Module& module, const std::string& original, const std::string& path) {
  exported::rewrite_weights(original, module_state_dict(module), path);
}

namespace {

std::shared_ptr<Net> make_exported(const ModelRequest& wanted) {
  const auto& eval_path = wanted.settings.eval_path;
  return load_exported(base::find_path(wanted.settings.path),
                       eval_path.empty() ? std::string() : base::find_path(eval_path));
}

}  // namespace

LOCKSTEP_MODEL(exported, .help = "a model saved by torch.export.save, in `path`",
               .reads = {"path", "eval_path"},
               .needs = {{"path", "set model.path to the file that torch.export.save wrote"}},
               .make = make_exported)

}  // namespace lockstep
