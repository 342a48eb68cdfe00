#pragma once
// What a checkpoint's model says of new samples.

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/setup/command.h"

namespace lockstep::train {

struct PredictOptions {
  std::string checkpoint, input;
  std::string output;  // empty = standard output
  std::string format;  // csv | json; empty = by the output's name, else csv
};

/// Writes a line a sample, or one JSON value, from rank 0. Returns the exit status. Collective.
int predict(const Command& command, const PredictOptions& options);

// What `lockstep predict` answers, and how that is written: CSV or JSON, from lines that the ranks make
// apart.

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
