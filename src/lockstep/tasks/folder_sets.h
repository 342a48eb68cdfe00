#pragma once
// What a folder of images holds to train and to evaluate on: found, checked and parted, on a node's first
// rank.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "lockstep/data/image_folder.h"
#include "lockstep/data/image_folder_set.h"
#include "lockstep/options/task_config.h"

namespace lockstep::tasks {

struct FolderSets {
  std::vector<std::string> classes;
  data::FoundImages train, eval;
  std::vector<std::string> notes;
};

/// InputError for what cannot be trained on, a damaged image among it where task.damaged says so.
FolderSets folder_sets(const TaskConfig& settings);

/// The evaluation set alone where it has a folder of its own; else both.
FolderSets folder_eval_set(const TaskConfig& settings, const std::vector<std::string>& classes);

/// What each byte becomes by task.normalize, [3, 256]. `standard` looks at up to 1,000 of the images.
at::Tensor folder_table(const TaskConfig& settings, const data::FoundImages& train);

/// Rows and columns, by task.size.
data::ImageLook folder_look(const TaskConfig& settings);

}  // namespace lockstep::tasks
