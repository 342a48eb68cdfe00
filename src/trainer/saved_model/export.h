#pragma once
// A checkpoint's model as what Python reads.

#include <string>
#include <string_view>

#include "trainer/setup/command.h"

namespace lockstep::train {

/// What torch.export's file is named with.
constexpr std::string_view kPt2Ending = ".pt2";

/// Of the model bert: a new folder that transformers loads. Returns the exit status. Collective.
int export_folder(const Command& command, const std::string& checkpoint, const std::string& output);

/// Of the model exported: model.path with the checkpoint's weights, and model.eval_path beside it. Returns
/// the exit status. Collective.
int export_pt2(const Command& command, const std::string& checkpoint, const std::string& file);

}  // namespace lockstep::train
