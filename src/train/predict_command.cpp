// `lockstep predict`: new samples in (IDX, PNG, CSV), a line each out (CSV, JSON).
#include <torch/types.h>
#include <torch/utils.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/paths.h"
#include "base/whole_file.h"
#include "checkpoint/state_dict.h"
#include "data/loader.h"
#include "train/autocast.h"
#include "train/console.h"
#include "train/rounds.h"
#include "train/run.h"
#include "train/saved.h"
#include "train/setup.h"
#include "train/step.h"
#include "train/task_memory.h"

namespace lockstep::train {
namespace {

struct Prediction {
  int64_t sample = 0, label = 0;
  std::string name;
  std::vector<float> probabilities;
};

void append(std::vector<Prediction>& all, const at::Tensor& output, const std::vector<int64_t>& indices,
            const std::vector<std::string>& names) {
  const auto probabilities = torch::softmax(output.to(torch::kCPU, torch::kFloat32), 1).contiguous();
  const auto labels = probabilities.argmax(1);
  const int64_t classes = probabilities.size(1);
  for (int64_t i = 0; i < probabilities.size(0); ++i) {
    const float* row = probabilities.data_ptr<float>() + i * classes;
    const auto label = labels[i].item<int64_t>();
    const auto at = static_cast<size_t>(label);
    all.push_back({indices[static_cast<size_t>(i)],
                   label,
                   at < names.size() ? names[at] : std::to_string(label),
                   {row, row + classes}});
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
    append(all, net.forward(input), batch.indices, setup.data.class_names);
  }
  return all;
}

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string csv_lines(const std::vector<Prediction>& all) {
  std::string text;
  for (const auto& one : all) {
    text += format("{},{}", one.sample, quoted(one.name));
    for (const float p : one.probabilities) text += format(",{:.9g}", p);
    text += "\n";
  }
  return text;
}

std::string json_lines(const std::vector<Prediction>& all) {
  std::string text;
  for (const auto& one : all) {
    const nlohmann::ordered_json json = {{"sample", one.sample},
                                         {"class", one.name},
                                         {"label", one.label},
                                         {"probabilities", one.probabilities}};
    text += json.dump() + "\n";
  }
  return text;
}

std::string csv_header(const std::vector<std::string>& names) {
  std::string text = "sample,class";
  for (const auto& name : names) text += "," + quoted("p(" + name + ")");
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
      [&] { inputs = setup.task->inputs(setup.settings, setup.data, find_path(options.input)); });
  const auto own = predict_share(setup, *net, inputs);
  std::string lines;
  for (const auto& part : setup.team->all_gather(json ? json_lines(own) : csv_lines(own))) lines += part;
  const std::string text = json ? json_document(lines) : csv_header(setup.data.class_names) + lines;
  setup.team->from_first([&] {
    if (options.output.empty()) {
      Console(true).line(text.substr(0, text.find_last_not_of('\n') + 1));
    } else {
      replace_file(options.output, text);
    }
    return std::string();
  });
  return kDone;
}

}  // namespace lockstep::train
