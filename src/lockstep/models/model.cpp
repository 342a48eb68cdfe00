// The model that a config names, from the table of models.
#include "lockstep/models/model.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/plugins/tables.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {

template <class Can>
std::string names_where(Can can) {
  std::vector<std::string> names;
  for (const auto* row : base::rows_of("model"))
    if (can(std::any_cast<const ModelRow&>(row->typed))) names.push_back(row->name);
  return base::join(names, " or ");
}

void check_fit(const std::string& name, const ModelRow& row, const ModelRequest& wanted) {
  const auto fits = [&](const ModelRow& one) {
    return one.input_shape == wanted.input_shape && one.classes == wanted.classes;
  };
  if (row.input_shape.empty() || fits(row)) return;
  const auto fitting = names_where(fits);
  throw InputError(
      format("the model {} maps {} to {} classes, but the data has {} and {} classes", name,
             c10::str(at::IntArrayRef(row.input_shape)), row.classes,
             c10::str(at::IntArrayRef(wanted.input_shape)), wanted.classes),
      "model.name",
      format("use {}mlp, or an exported or torchscript model", fitting.empty() ? "" : fitting + ", "));
}

bool can_split(const ModelRow& row) {
  return row.splits;
}
// One that reads whatever it likes ("*") may never look at it.
bool can_checkpoint(const ModelRow& row) {
  return std::find(row.reads.begin(), row.reads.end(), "checkpointing") != row.reads.end();
}

void check_splits(const std::string& name, const ModelRow& row, const Layers& layers) {
  if (can_split(row) || !layers.shared()) return;
  throw InputError(format("the layers of the model {} cannot be split among ranks", name),
                   "model.name, parallel.tensor",
                   format("use {}, or set parallel.tensor to 1", names_where(can_split)));
}

void check_checkpointing(const std::string& name, const ModelRow& row, const ModelSettings& settings) {
  if (can_checkpoint(row) || !settings.checkpointing) return;
  throw InputError(format("the model {} does not support activation checkpointing", name),
                   "model.checkpointing",
                   format("use {}, or leave it out; your own model must call "
                          "lockstep::checkpoint_activations() and name `checkpointing` in its `reads`",
                          names_where(can_checkpoint)));
}

}  // namespace

std::shared_ptr<Net> make_model(const ModelSettings& settings, const std::string& task_model,
                                const std::vector<int64_t>& input_shape, int64_t classes) {
  const auto& name = settings.name.empty() ? task_model : settings.name;
  const auto& row = base::require<ModelRow>("model", name, "model.name");
  const ModelRequest wanted{settings, input_shape, classes, LayersGuard::current()};
  check_fit(name, row, wanted);
  check_splits(name, row, *wanted.layers);
  check_checkpointing(name, row, settings);
  return base::made(row.make(wanted), "model", name, "model.name");
}

}  // namespace lockstep
