#include "tools/model_check/check.h"

#include <torch/types.h>

#include "lockstep/base/fault.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/base/memory.h"
#include "lockstep/base/readable.h"
#include "lockstep/launch/process/report.h"
#include "tools/model_check/sample.h"
#include "tools/model_check/trial.h"
#include "tools/model_check/words.h"

namespace lockstep::model_check {
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
