// `lockstep predict`: new samples in (IDX, PNG, CSV), a line each out (CSV, JSON).
#include <torch/types.h>
#include <torch/utils.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/output.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/readable.h"
#include "lockstep/base/whole_file.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/data/loader.h"
#include "lockstep/launch/terminal.h"
#include "lockstep/train/autocast.h"
#include "lockstep/train/rounds.h"
#include "lockstep/train/run.h"
#include "lockstep/train/saved.h"
#include "lockstep/train/setup.h"
#include "lockstep/train/step.h"
#include "lockstep/train/task_memory.h"

namespace lockstep::train {
namespace {

struct Prediction {
  int64_t sample = 0, label = 0;
  std::string name;
  std::vector<float> numbers;  // a probability a class, or the one number that is predicted
};

/// Where the data was read this was tried before; a checkpoint's memory brings no samples to try.
void check_width(const at::Tensor& output, const TaskData& data) {
  const auto wanted = static_cast<int64_t>(data.class_names.size());
  if (output.dim() == 2 && output.size(1) == wanted) return;
  throw InputError(
      format("the model's output is of {} where the checkpoint's task has {}", c10::str(output.sizes()),
             data.regression ? "one number a sample" : format("{} classes", wanted)),
      "model.name, task.name", "take the config that the checkpoint was trained with");
}

void append(std::vector<Prediction>& all, const at::Tensor& output, const std::vector<int64_t>& indices,
            const TaskData& data) {
  check_width(output, data);
  const auto plain = output.to(torch::kCPU, torch::kFloat32);
  const auto numbers = (data.regression ? plain : torch::softmax(plain, 1)).contiguous();
  const auto labels = numbers.argmax(1);
  const int64_t width = numbers.size(1);
  for (int64_t i = 0; i < numbers.size(0); ++i) {
    const float* row = numbers.data_ptr<float>() + i * width;
    const auto label = labels[i].item<int64_t>();
    all.push_back({indices[static_cast<size_t>(i)],
                   label,
                   data.class_names[static_cast<size_t>(label)],
                   {row, row + width}});
  }
}

std::vector<Prediction> predict_share(const Setup& setup, Net& net, std::shared_ptr<const Dataset> inputs) {
  const torch::NoGradGuard no_grad;
  net.eval();
  const auto& settings = setup.settings;
  const auto device = setup.team->device();
  const ShardSampler sampler(inputs->size(), setup.team->rank(), setup.team->world());
  Loader loader(std::move(inputs), sampler, loader_options(settings, device));
  std::vector<Prediction> all;
  for (auto& batch : loader) {
    const auto input = placed(batch.input, device, settings.train.layout);
    const Autocast scope(device.type(), autocast_type(settings.train.precision));
    append(all, net.forward(input), batch.indices, setup.data);
  }
  return all;
}

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string csv_lines(const std::vector<Prediction>& all, bool regression) {
  std::string text;
  for (const auto& one : all) {
    text += std::to_string(one.sample);
    if (!regression) text += "," + quoted(one.name);
    for (const float number : one.numbers) text += format(",{:.9g}", number);
    text += "\n";
  }
  return text;
}

std::string json_lines(const std::vector<Prediction>& all, bool regression) {
  std::string text;
  for (const auto& one : all) {
    nlohmann::ordered_json json = {{"sample", one.sample}};
    if (regression) {
      json["value"] = one.numbers[0];
    } else {
      json.update({{"class", one.name}, {"label", one.label}, {"probabilities", one.numbers}});
    }
    // a class is any text of a file's
    text += json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  return text;
}

std::string csv_header(const TaskData& data) {
  if (data.regression) return "sample,value\n";
  std::string text = "sample,class";
  for (const auto& name : data.class_names) text += "," + quoted("p(" + name + ")");
  return text + "\n";
}

// {"predictions": [...]} is one JSON value, made of the ranks' lines.
std::string json_document(const std::string& lines) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (size_t begin = 0; begin < lines.size();) {
    const auto end = lines.find('\n', begin);
    all.push_back(nlohmann::ordered_json::parse(lines.substr(begin, end - begin)));
    begin = end + 1;
  }
  return nlohmann::ordered_json{{"predictions", all}}.dump(1);
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

}  // namespace

int predict(const Command& command, const PredictOptions& options) {
  const bool json = wants_json(options);
  auto setup = join_job(command);
  const auto [path, tree] = read_saved(*setup.team, options.checkpoint);
  if (!recall(setup, tree)) load_data(setup);
  const auto net = seeded_model(setup);
  load_module_state_dict(*net, find_state_dict(tree, path), path);
  net->to(setup.team->device());
  std::shared_ptr<const Dataset> inputs;
  setup.team->together(
      [&] { inputs = setup.task->inputs(setup.settings, setup.data, base::find_path(options.input)); });
  std::vector<Prediction> own;
  setup.team->together([&] { own = predict_share(setup, *net, inputs); });
  const bool regression = setup.data.regression;
  std::string lines;
  for (const auto& part :
       setup.team->all_gather(json ? json_lines(own, regression) : csv_lines(own, regression)))
    lines += part;
  const std::string text = json ? json_document(lines) : csv_header(setup.data) + lines;
  setup.team->from_first([&] {
    if (options.output.empty()) {
      print_answers(text);
    } else {
      base::write_output(options.output, text, "name another file with --output, or make room");
    }
    return std::string();
  });
  return kDone;
}

}  // namespace lockstep::train
