#pragma once
// A task's files of texts as tokens: read once a node, kept from run to run.

#include <string>
#include <vector>

#include "lockstep/data/node_share.h"
#include "lockstep/options/task_config.h"
#include "lockstep/tasks/text_task.h"

namespace lockstep::tasks {

/// What makes the tokens: task.vocabulary's folder, or model.path's.
struct TaskVocabulary {
  std::string folder;
  std::string digest;  // of the files that say how
  Tokenizer tokenizer;
};
TaskVocabulary open_vocabulary(const TaskConfig& settings);

struct TextSets {
  std::vector<Tokenised> files = {};    // the training file first where it is looked for
  std::vector<std::string> paths = {};  // of those
  Parts parts = {};                     // of the evaluation set; empty where it has no file of its own
  TextColumns columns = {};             // none is empty
  std::string vocabulary = {};          // its digest
  int64_t pad = 0, unk = 0;             // the numbers of [PAD] and [UNK]
  std::vector<std::string> notes = {};
};

/// Called on every rank; the node's first one reads. `known`: columns that a checkpoint remembers.
TextSets read_texts(const TaskConfig& settings, const NodeShare& node, TextTask::Recipe recipe,
                    TextTask::Look look, const TextColumns& known);

}  // namespace lockstep::tasks
