#include "lockstep/exported/program.h"

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/exported/refusing.h"

namespace lockstep::exported {
namespace {

constexpr const char* kModel = "models/model.json";

// The forms of the graph that are known: torch 2.9 writes 8.14, torch 2.15 writes 8.20.
constexpr int64_t kMajor = 8, kLeastMinor = 14, kMostMinor = 20;

void read_version(const Json& model, ExportedProgram& program) {
  const auto& version = model.at("schema_version");
  const auto major = whole_number(version.at("major")), minor = whole_number(version.at("minor"));
  program.schema = format("{}.{}", major, minor);
  if (const auto torch = model.find("torch_version"); torch != model.end() && torch->is_string())
    program.torch_version = shown(torch->get<std::string>());
  if (major != kMajor || minor < kLeastMinor) {
    throw Refusal(
        format("the graph is written in form {}{}, and forms {}.{} to {}.x can be read", program.schema,
               program.torch_version.empty() ? "" : " (torch " + program.torch_version + ")", kMajor,
               kLeastMinor, kMajor),
        std::string("with a torch between 2.9 and the one this lockstep is built with ") + kExportAgain);
  }
  program.is_newer = minor > kMostMinor;
}

std::set<std::string> counters_of(const Signature& signature) {
  std::set<std::string> found;
  for (const auto& input : signature.inputs) {
    if (input.kind == Input::Kind::buffer && input.name.ends_with("num_batches_tracked"))
      found.insert(input.argument);
  }
  return found;
}

void check_tensors(const ExportedProgram& program) {
  for (const auto& input : program.signature.inputs) {
    if (!is_given(input) && !program.weights.contains(input.name) && !program.constants.contains(input.name))
      throw Refusal(format("the file lacks the tensor {}", shown(input.name)));
  }
}

// Where its first parameter was.
at::DeviceType home_of(const Json& graph, const Signature& signature) {
  for (const auto& input : signature.inputs) {
    if (input.kind != Input::Kind::parameter) continue;
    const auto& values = graph.at("tensor_values");
    const auto found = values.find(input.argument);
    return found == values.end() ? at::kCPU : device_of(found->at("device")).type();
  }
  return at::kCPU;
}

void read_graph(const Json& model, ExportedProgram& program) {
  read_version(model, program);
  program.signature = read_signature(model);
  program.home = home_of(model.at("graph_module").at("graph"), program.signature);
  program.graph =
      compile(model.at("graph_module").at("graph"), counters_of(program.signature), program.calls);
  if (program.signature.inputs.size() != program.graph.inputs.size() ||
      program.signature.outputs.size() != program.graph.outputs.size())
    throw Refusal("its signature is of another graph");
}

}  // namespace

ExportedProgram read_program(const std::string& path) {
  const Archive archive(path);
  ExportedProgram program;
  program.path = path;
  refusing(path, [&] {
    read_graph(archive.json(kModel), program);
    program.digest = archive.digest(kModel);
    program.weights = read_weights(archive);
    program.constants = read_constants(archive);
    check_tensors(program);
  });
  return archive.whole(std::move(program));
}

ExportedProgram read_program(std::string_view model_json, const std::string& path) {
  ExportedProgram program;
  program.path = path;
  refusing(path, [&] { read_graph(base::parse_json(model_json), program); });
  return program;
}

}  // namespace lockstep::exported
