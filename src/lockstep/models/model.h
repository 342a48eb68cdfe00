#pragma once
// The models that a config can name: a table with one row per model, which the model's own file adds.

#include <torch/version.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/table.h"
#include "lockstep/models/layers.h"
#include "lockstep/models/net.h"
#include "lockstep/options/settings.h"

namespace lockstep {

/// The request to create a model.
struct ModelRequest {
  const ModelSettings& settings;
  const std::vector<int64_t>& input_shape;  ///< shape of one sample
  int64_t classes;                          ///< number of outputs
  std::shared_ptr<const Layers> layers;     ///< layers for a model that supports splitting
};

/// Creates a model and initializes its parameters from torch's generator, which the caller has seeded.
using ModelFactory = std::function<std::shared_ptr<Net>(const ModelRequest&)>;
/// Deprecated.
using WantedModel [[deprecated("use ModelRequest")]] = ModelRequest;
using MakeModel [[deprecated("use ModelFactory")]] = ModelFactory;

/// A row of the table of models: RowOf's fields, and the input shape of a model that accepts only one.
struct ModelRow {
  std::string help = {};
  std::vector<std::string> reads = {};
  std::vector<RowNeed> needs = {};
  std::map<std::string, std::string> defaults = {};
  ModelFactory make = {};
  std::vector<int64_t> input_shape = {};  ///< empty = any shape
  int64_t classes = 0;                    ///< number of outputs, if input_shape is set
  bool splits = false;                    ///< uses ModelRequest's layers, which may be split
};

/// A factory for a model without settings.
template <class Model>
std::shared_ptr<Net> made(const ModelRequest&) {
  return std::make_shared<Model>();
}

/// Creates the model settings.name, or `task_model` if it is empty. Throws InputError if it does not exist,
/// does not accept these samples or classes, or cannot be split over ranks as configured.
std::shared_ptr<Net> make_model(const ModelSettings& settings, const std::string& task_model,
                                const std::vector<int64_t>& input_shape, int64_t classes);

}  // namespace lockstep

/// Adds a model, in the file that defines it: LOCKSTEP_MODEL(tiny, .help = "...", .make =
/// lockstep::made<Tiny>)
#define LOCKSTEP_MODEL(NAME, ...) \
  LOCKSTEP_ROW(model, "model", NAME, lockstep::ModelRow, sizeof(lockstep::ModelSettings), __VA_ARGS__)
