#pragma once
// What a checkpoint's model is used for: its metrics, its predictions, files for Python. The functions are
// collective and return the exit status.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/setup/command.h"

namespace lockstep::train {

/// Prints the metrics of the checkpoint from rank 0, as lines or one JSON object.
int print_metrics(const Command& command, const std::string& checkpoint, bool json);

/// What torch.export's file is named with.
constexpr std::string_view kPt2Ending = ".pt2";
/// Of the model bert: a new folder that transformers loads.
int export_folder(const Command& command, const std::string& checkpoint, const std::string& output);
/// Of the model exported: model.path with the checkpoint's weights, and model.eval_path beside it.
int export_pt2(const Command& command, const std::string& checkpoint, const std::string& file);

struct PredictOptions {
  std::string checkpoint, input;
  std::string output;  // empty = standard output
  std::string format;  // csv | json; empty = from the output's extension, else csv
};

/// Writes a line a sample, or one JSON value, from rank 0.
int predict(const Command& command, const PredictOptions& options);

// What `lockstep predict` answers, and how that is written: CSV or JSON, from the ranks' lines.

struct Prediction {
  int64_t sample = 0, label = 0;
  std::string name;            // of the class
  std::string source;          // what the sample is called, its file say; empty = its number alone
  std::vector<float> numbers;  // a probability a class, or the one number that is predicted
};

/// A line each.
std::string csv_lines(const std::vector<Prediction>& all, bool regression);
std::string json_lines(const std::vector<Prediction>& all, bool regression);

/// The line above csv_lines; `class_names` empty where a number is predicted.
std::string csv_header(const std::vector<std::string>& class_names, bool named);

/// One JSON value, {"predictions": [...]}, of all ranks' json_lines.
std::string json_document(const std::string& lines);

}  // namespace lockstep::train
