#pragma once
// The models that a config can name: a row each, added by the file that defines the model.

#include <torch/version.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/table.h"
#include "lockstep/models/layers.h"
#include "lockstep/models/net.h"
#include "lockstep/options/settings.h"

namespace lockstep {

/// What a model is made for.
struct ModelRequest {
  const ModelSettings& settings;
  const std::vector<int64_t>& input_shape;  ///< of one sample
  int64_t classes;                          ///< the outputs that the task wants
  std::shared_ptr<const Layers> layers;     ///< what a model that splits is made of
};

/// Makes a model; its parameters are drawn from torch's generator as the caller seeded it.
using ModelFactory = std::function<std::shared_ptr<Net>(const ModelRequest&)>;
/// Deprecated.
using WantedModel [[deprecated("use ModelRequest")]] = ModelRequest;
using MakeModel [[deprecated("use ModelFactory")]] = ModelFactory;

/// A row of the table of models: RowOf's fields, and what the model takes where it takes one thing alone.
struct ModelRow {
  std::string help = {};
  std::vector<std::string> reads = {};
  std::vector<RowNeed> needs = {};
  std::map<std::string, std::string> defaults = {};
  ModelFactory make = {};
  std::vector<int64_t> input_shape = {};  ///< empty = anything
  int64_t classes = 0;                    ///< with an input_shape
  bool splits = false;                    ///< made of ModelRequest's layers, which ranks may share
};

/// .make for a model that is always the same.
template <class Model>
std::shared_ptr<Net> made(const ModelRequest&) {
  return std::make_shared<Model>();
}

/// The model that settings.name says, or where it says nothing `task_model`. InputError where it does not
/// exist, takes other samples or classes, or cannot be shared by the ranks that are to.
std::shared_ptr<Net> make_model(const ModelSettings& settings, const std::string& task_model,
                                const std::vector<int64_t>& input_shape, int64_t classes);

}  // namespace lockstep

/// Adds a model, in the file that defines it: LOCKSTEP_MODEL(tiny, .help = "...", .make =
/// lockstep::made<Tiny>)
#define LOCKSTEP_MODEL(NAME, ...) \
  LOCKSTEP_ROW(model, "model", NAME, lockstep::ModelRow, sizeof(lockstep::ModelSettings), __VA_ARGS__)
