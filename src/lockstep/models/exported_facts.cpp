#include "lockstep/models/exported_facts.h"

#include <c10/core/ScalarType.h>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::models {
namespace {

using exported::Input;
using exported::Output;

// torch's word in Python: c10's "Float" is float32
std::string word_of(at::ScalarType dtype) {
  return std::string(c10::getDtypeNames(dtype).first);
}

ExportedValue value_of(const std::string& name, const std::optional<exported::TensorMeta>& meta,
                       const std::string& otherwise) {
  ExportedValue value{.name = base::printable(name), .kind = meta ? word_of(meta->dtype) : otherwise};
  if (!meta) return value;
  for (size_t i = 0; i < meta->sizes.size(); ++i)
    value.sizes.push_back(meta->sizes[i] ? format("{}", *meta->sizes[i]) : meta->symbols[i]);
  return value;
}

std::string eval_note(const std::string& draws) {
  if (draws.empty()) {
    return "without model.eval_path, evaluation turns off dropout and the norms' statistics of a batch in "
           "the graph of training; what the model chose by `if self.training` stays as it was exported";
  }
  return "the model draws random numbers by itself (" + draws + "): evaluation needs model.eval_path";
}

std::vector<std::string> notes_of(const exported::ExportedProgram& program) {
  std::vector<std::string> notes;
  if (program.calls.on == 0 && program.calls.off > 0) {
    notes.push_back(
        "dropout and norms are off in its graph, as after model.eval(): a model that trains is exported "
        "after model.train()");
  }
  for (const auto& input : program.signature.inputs) {
    if (input.kind != Input::Kind::buffer || input.saved || !program.calls.changed.contains(input.argument))
      continue;
    notes.push_back(
        "forward changes the buffer " + base::printable(input.name) +
        ", which no state_dict of Python's holds: a run that is resumed begins with the file's value");
  }
  return notes;
}

}  // namespace

std::string draws_of(const exported::ExportedProgram& program) {
  const auto& draws = program.calls.draws;
  return base::join({draws.begin(), draws.end()}, ", ");
}

ExportedFacts facts_of(const exported::ExportedProgram& program, bool has_eval) {
  ExportedFacts facts{.torch_version = program.torch_version, .schema = program.schema};
  for (const auto number : program.signature.given) {
    const auto& input = program.signature.inputs[number];
    facts.inputs.push_back(value_of(input.name, input.meta, input.value));
  }
  for (const auto& output : program.signature.outputs) {
    if (output.kind == Output::Kind::user)
      facts.outputs.push_back(value_of(output.name, output.meta, output.name));
  }
  for (const auto& [symbol, range] : program.signature.ranges)
    facts.sizes[symbol] = {range.least, range.most};
  facts.operators = program.calls.operators;
  if (program.is_newer) {
    facts.notes.push_back(format("it was written by a newer torch ({}) than is known here, and is tried",
                                 program.torch_version));
  }
  for (const auto& note : notes_of(program)) facts.notes.push_back(note);
  if (!has_eval) facts.notes.push_back(eval_note(draws_of(program)));
  return facts;
}

}  // namespace lockstep::models
