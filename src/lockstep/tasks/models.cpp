// The models that a config can name.
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "lockstep/models/mlp.h"
#include "lockstep/models/pima_net.h"
#include "lockstep/models/simple_cnn.h"
#include "lockstep/models/torchscript.h"
#include "lockstep/tasks/registry.h"

namespace lockstep {
namespace {

using Shape = std::vector<int64_t>;

std::string text_of(const Shape& shape) {
  std::vector<std::string> sizes;
  for (int64_t size : shape) sizes.push_back(format("{}", size));
  return "[" + base::join(sizes, ", ") + "]";
}

struct Wanted {
  const ModelSettings& settings;
  const Shape& input;
  int64_t classes;
};

template <class M>
std::shared_ptr<Net> made(const Wanted&) {
  return std::make_shared<M>();
}

std::shared_ptr<Net> made_mlp(const Wanted& wanted) {
  const auto inputs =
      std::accumulate(wanted.input.begin(), wanted.input.end(), int64_t{1}, std::multiplies<>());
  const auto& hidden = wanted.settings.hidden;
  return std::make_shared<Mlp>(inputs, hidden.empty() ? Shape{64, 32} : hidden, wanted.classes);
}

std::shared_ptr<Net> made_script(const Wanted& wanted) {
  return std::make_shared<TorchScriptNet>(base::find_path(wanted.settings.path));
}

struct Row {
  const char* name;
  std::shared_ptr<Net> (*make)(const Wanted&);
  Shape input;  // what it takes; empty = anything
  int64_t classes;
};

const std::vector<Row>& table() {
  static const std::vector<Row> rows{
      {"simple_cnn", made<SimpleCNN>, {1, 28, 28}, 10},
      {"pima_net", made<PimaNet>, {8}, 2},
      {"pima_net_branch", made<PimaNetBranch>, {8}, 2},
      {"mlp", made_mlp, {}, 0},
      {"torchscript", made_script, {}, 0},
  };
  return rows;
}

void check_fit(const Row& row, const Wanted& wanted) {
  if (row.input.empty() || (row.input == wanted.input && row.classes == wanted.classes)) return;
  throw InputError(format("the model {} takes {} to {} classes, the data has {} and {} classes", row.name,
                          text_of(row.input), row.classes, text_of(wanted.input), wanted.classes),
                   "model.name", "take mlp or a torchscript model");
}

}  // namespace

std::vector<std::string> tasks::model_names() {
  std::vector<std::string> names;
  for (const auto& row : table()) names.emplace_back(row.name);
  return names;
}

std::shared_ptr<Net> make_model(const ModelSettings& settings, const std::string& task_model,
                                const Shape& input_shape, int64_t classes) {
  const auto& name = settings.name.empty() ? task_model : settings.name;
  const Wanted wanted{settings, input_shape, classes};
  for (const auto& row : table()) {
    if (row.name != name) continue;
    check_fit(row, wanted);
    return row.make(wanted);
  }
  const auto near = base::nearest(name, tasks::model_names());
  throw InputError(
      format("there is no model '{}'", name), "model.name",
      near ? format("did you mean {}?", *near) : "there are " + base::join(tasks::model_names(), ", "));
}

}  // namespace lockstep
