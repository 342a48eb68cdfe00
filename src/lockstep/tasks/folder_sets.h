#pragma once
// What a folder of images holds to train and to evaluate on: found, checked and parted, on a node's first
// rank.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "lockstep/config/settings.h"
#include "lockstep/data/image_folder.h"
#include "lockstep/data/image_folder_set.h"

namespace lockstep::tasks {

struct FolderSets {
  std::vector<std::string> classes;
  data::FoundImages train, eval;
  std::vector<std::string> notes;
};

/// InputError for what cannot be trained on, a damaged image among it where task.damaged says so.
FolderSets folder_sets(const Settings& settings);

/// The evaluation set alone where it has a folder of its own; else both.
FolderSets folder_eval_set(const Settings& settings, const std::vector<std::string>& classes);

/// What each byte becomes by task.normalize, [3, 256]. `standard` looks at up to 1,000 of the images.
at::Tensor folder_table(const Settings& settings, const data::FoundImages& train);

/// Rows and columns, by task.size.
data::ImageLook folder_look(const Settings& settings);

}  // namespace lockstep::tasks
