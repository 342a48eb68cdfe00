// lockstep predict: the classes and probabilities of new samples.
#include "trainer/saved_model/saved_model.h"

#include <torch/types.h>
#include <torch/utils.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/loader.h"
#include "lockstep/launch/process/terminal.h"
#include "lockstep/parallel/team.h"
#include "trainer/modes/model.h"
#include "trainer/setup/saved.h"
#include "trainer/setup/setup.h"
#include "trainer/step/evaluate.h"
#include "trainer/step/step.h"

namespace lockstep::train {
namespace {

// What is to be predicted from: a file of new samples, or what stands on standard input.

std::string all_of_standard_input() {
  std::string text;
  std::array<char, 1 << 16> part;
  for (;;) {
    const auto got = ::read(STDIN_FILENO, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw InputError(format("cannot read: {}", strerror(errno)), "standard input", "");
    if (got == 0) return text;
    text.append(part.data(), static_cast<size_t>(got));
  }
}

/// The file that --input names. For "-" one of this rank's own, which holds what rank 0 was given.
class PredictInput {
 public:
  /// Collective.
  PredictInput(const Team& team, const std::string& asked) : path_(base::find_path(asked)) {
    if (asked != "-") return;
    const auto text = team.from_first(all_of_standard_input);
    team.together([&] {
      folder_.emplace();
      path_ = folder_->path() + "/standard input";
      base::replace_file(path_, text);
    });
  }

  /// The task's samples of it. An error names standard input by its name.
  std::shared_ptr<const Dataset> read(const Setup& setup) const {
    try {
      return setup.task->inputs(setup.settings.for_task(), setup.data, path_);
    } catch (const InputError& error) {
      auto fault = error.fault();
      const bool ours = folder_ && fault.where.starts_with(folder_->path());
      if (ours) fault.where.erase(0, folder_->path().size() + 1);
      throw InputError(std::move(fault));
    }
  }

 private:
  std::string path_;
  std::optional<base::TemporaryFolder> folder_;
};

}  // namespace

std::string csv_lines(const std::vector<Prediction>& all, bool regression) {
  std::string text;
  for (const auto& one : all) {
    text += std::to_string(one.sample);
    if (!one.source.empty()) text += "," + base::csv_field(one.source);
    if (!regression) text += "," + base::csv_field(one.name);
    for (const float number : one.numbers) text += format(",{:.9g}", number);
    text += "\n";
  }
  return text;
}

std::string json_lines(const std::vector<Prediction>& all, bool regression) {
  std::string text;
  for (const auto& one : all) {
    nlohmann::ordered_json json = {{"sample", one.sample}};
    if (!one.source.empty()) json["name"] = one.source;
    if (regression) {
      json["value"] = one.numbers[0];
    } else {
      json.update({{"class", one.name}, {"label", one.label}, {"probabilities", one.numbers}});
    }
    // a class is any text of a file's
    text += base::as_line(json) + "\n";
  }
  return text;
}

std::string csv_header(const std::vector<std::string>& class_names, bool named) {
  std::string text = named ? "sample,name" : "sample";
  if (class_names.empty()) return text + ",value\n";
  text += ",class";
  for (const auto& name : class_names) text += "," + base::csv_field("p(" + name + ")");
  return text + "\n";
}

std::string json_document(const std::string& lines) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (size_t begin = 0; begin < lines.size();) {
    const auto end = lines.find('\n', begin);
    all.push_back(nlohmann::ordered_json::parse(lines.substr(begin, end - begin)));
    begin = end + 1;
  }
  return nlohmann::ordered_json{{"predictions", all}}.dump(1);
}

namespace {

// Where the data was read this was tried before; a checkpoint's memory brings no samples to try.
void check_width(const at::Tensor& output, const TaskData& data) {
  const auto wanted = static_cast<int64_t>(data.class_names.size());
  if (output.dim() == 2 && output.size(1) == wanted) return;
  throw InputError(
      format("the model's output has {}, but the checkpoint's task has {}", c10::str(output.sizes()),
             data.regression ? "one number per sample" : format("{} classes", wanted)),
      "model.name, task.name", "use the config that the checkpoint was trained with");
}

at::Tensor in_own_unit(const at::Tensor& output, const std::optional<LabelScale>& scale) {
  if (!scale) return output;
  return (output.to(torch::kFloat64) * scale->std + scale->mean).to(torch::kFloat32);
}

void append(std::vector<Prediction>& all, const at::Tensor& output, const std::vector<int64_t>& indices,
            const TaskData& data, const Dataset& inputs) {
  check_width(output, data);
  const auto plain = output.to(torch::kCPU, torch::kFloat32);
  const auto numbers =
      (data.regression ? in_own_unit(plain, data.label_scale) : torch::softmax(plain, 1)).contiguous();
  const auto labels = numbers.argmax(1);
  const int64_t width = numbers.size(1);
  for (int64_t i = 0; i < numbers.size(0); ++i) {
    const float* row = numbers.data_ptr<float>() + i * width;
    const auto label = labels[i].item<int64_t>();
    const auto sample = indices[static_cast<size_t>(i)];
    all.push_back({sample,
                   label,
                   data.class_names[static_cast<size_t>(label)],
                   inputs.name_of(sample),
                   {row, row + width}});
  }
}

std::vector<Prediction> predict_share(const Setup& setup, Net& net,
                                      const std::shared_ptr<const Dataset>& inputs) {
  const torch::NoGradGuard no_grad;
  net.eval();
  const auto& settings = setup.settings;
  const auto device = setup.team->device();
  const ShardSampler sampler(inputs->size(), setup.team->rank(), setup.team->world());
  Loader loader(inputs, sampler, loader_options(settings, device));
  std::vector<Prediction> all;
  for (auto& batch : loader) {
    const auto input = placed(net, batch.input, device, settings.train.layout);
    const Autocast scope(device.type(), settings.train.precision);
    append(all, net.forward(input), batch.indices, setup.data, *inputs);
  }
  return all;
}

bool wants_json(const PredictOptions& options) {
  if (!options.format.empty()) {
    if (options.format == "json" || options.format == "csv") return options.format == "json";
    throw InputError("there is no output format '" + options.format + "'", "--format", "choose csv or json");
  }
  return options.output.size() > 5 && options.output.substr(options.output.size() - 5) == ".json";
}

// Byte for byte, as --output has them; a person's terminal is spared what a class's name may hold.
void print_answers(const std::string& text) {
  const auto line = text.substr(0, text.find_last_not_of('\n') + 1) + "\n";
  output::print(launch::terminal_behind(STDOUT_FILENO) ? base::readable(line) : line);
}

// What all ranks answer, whole, on each.
std::string text_of_all(const Setup& setup, const std::vector<Prediction>& own, bool named, bool json) {
  const bool regression = setup.data.regression;
  std::string lines;
  for (const auto& part :
       setup.team->all_gather(json ? json_lines(own, regression) : csv_lines(own, regression)))
    lines += part;
  if (json) return json_document(lines);
  return csv_header(regression ? std::vector<std::string>{} : setup.data.class_names, named) + lines;
}

}  // namespace

int predict(const Command& command, const PredictOptions& options) {
  const bool json = wants_json(options);
  auto setup = join_job(command);
  const auto [path, tree] = read_saved(*setup.team, options.checkpoint);
  if (!recall(setup, tree)) load_data(setup);
  const auto net = seeded_model(setup);
  load_module_state_dict(*net, find_state_dict(tree, path), path);
  net->to(setup.team->device());
  const PredictInput file(*setup.team, options.input);
  std::shared_ptr<const Dataset> inputs;
  setup.team->together([&] { inputs = file.read(setup); });
  std::vector<Prediction> own;
  setup.team->together([&] { own = predict_share(setup, *net, inputs); });
  const auto text = text_of_all(setup, own, inputs->size() > 0 && !inputs->name_of(0).empty(), json);
  setup.team->from_first([&] {
    if (options.output.empty()) {
      print_answers(text);
    } else {
      base::write_output(options.output, text, "create the folder, free disk space, or change --output");
    }
    return std::string();
  });
  return kDone;
}

}  // namespace lockstep::train
