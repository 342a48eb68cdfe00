#pragma once
// The typed settings of a run: what a config file says, resolved. One struct a section. A new field here
// needs a row in the table of keys (keys.cpp): a test compares the two.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/launch/options.h"
#include "lockstep/options/settings.h"

namespace lockstep {

// The settings of `train` that take one of a few words: a type each, and its words in the type's order.

enum class TrainMode { ddp, single, data_parallel };
enum class SameBits { off, required };
enum class Precision { fp32, bf16, fp16 };
enum class ImageLayout { nchw, channels_last, automatic };
enum class KernelChoice { exact, fast };
enum class Tf32 { convolutions, all, none };

template <class Choice>
inline constexpr std::array<std::string_view, 0> kWords = {};
template <>
inline constexpr auto kWords<TrainMode> = std::to_array<std::string_view>({"ddp", "single", "data_parallel"});
template <>
inline constexpr auto kWords<SameBits> = std::to_array<std::string_view>({"off", "required"});
template <>
inline constexpr auto kWords<Precision> = std::to_array<std::string_view>({"fp32", "bf16", "fp16"});
template <>
inline constexpr auto kWords<ImageLayout> = std::to_array<std::string_view>({"nchw", "channels_last",
                                                                             "auto"});
template <>
inline constexpr auto kWords<KernelChoice> = std::to_array<std::string_view>({"exact", "fast"});
template <>
inline constexpr auto kWords<Tf32> = std::to_array<std::string_view>({"convolutions", "all", "none"});

template <class Choice>
concept OneOfWords = !kWords<Choice>.empty();

/// As it is written in a config.
template <OneOfWords Choice>
std::string word_of(Choice choice) {
  return std::string(kWords<Choice>[static_cast<size_t>(choice)]);
}

/// All words, in the type's order.
template <OneOfWords Choice>
std::vector<std::string> words_of() {
  return {kWords<Choice>.begin(), kWords<Choice>.end()};
}

/// What the word stands for. Throws where it is none of them: a config's words were looked at before.
template <OneOfWords Choice>
Choice choice_of(std::string_view word) {
  const auto found = std::find(kWords<Choice>.begin(), kWords<Choice>.end(), word);
  if (found == kWords<Choice>.end()) throw std::out_of_range("no such choice: " + std::string(word));
  return static_cast<Choice>(found - kWords<Choice>.begin());
}

/// The section `run`.
struct RunSettings {
  std::string name = "run";
  std::string dir = "runs";
  int64_t seed = 0;

  bool operator==(const RunSettings&) const = default;
};

/// The section `ddp`; DdpOptions says what each does.
struct DdpSettings {
  bool find_unused_parameters = false;
  bool static_graph = false;
  std::optional<double> bucket_cap_mb;  // nullopt = Python's unset: 1 MiB first, then 25
  bool gradient_as_bucket_view = false;
  bool broadcast_buffers = true;
  bool sync_batchnorm = false;
  std::string comm_hook = "none";                   // a row of the table of comm hooks
  std::map<std::string, std::string> options = {};  // for a hook of the user's own

  bool has_hook() const { return comm_hook != "none"; }
  bool operator==(const DdpSettings&) const = default;
};

/// The section `parallel`: the ranks as a grid.
struct ParallelSettings {
  int64_t data = 0;           // 0 = what the others leave of the world
  int64_t tensor = 1;         // ranks that share each layer
  int64_t pipeline = 1;       // ranks that each hold some of the layers
  int64_t micro_batches = 4;  // of a pipeline's batch
  bool sequence = false;      // norms between tensor-parallel layers share the tokens, too

  bool operator==(const ParallelSettings&) const = default;
};

/// The section `data_parallel`, for train.mode: data_parallel.
struct DataParallelSettings {
  int64_t devices = 0;           // 0 = every GPU of this process; on a CPU, two
  bool loss_in_forward = false;  // each device computes its own loss: outputs are not gathered

  bool operator==(const DataParallelSettings&) const = default;
};

/// The section `train`.
struct TrainSettings {
  TrainMode mode = TrainMode::ddp;
  int64_t as_world = 0;  // the ranks, whatever the number of processes; 0 = one a process
  int64_t threads = 0;   // of a rank; 0 = its share of the cores, or 1 with as_world
  SameBits exact = SameBits::off;
  int64_t epochs = 5;
  int64_t max_steps = 0;
  double max_seconds = 0;
  Precision precision = Precision::fp32;
  ImageLayout layout = ImageLayout::nchw;
  KernelChoice kernels = KernelChoice::exact;
  bool graph = false;  // the step is captured, and replayed
  Tf32 tf32 = Tf32::convolutions;
  bool cudnn_benchmark = false;
  bool deterministic = false;
  int64_t accumulate = 1;
  double clip_norm = 0;
  double label_smoothing = 0;
  int64_t log_every = 100;
  int64_t eval_every = 1;
  int64_t early_stop = 0;        // epochs without a better eval loss before the run ends; 0 = never
  int64_t trace = 0;             // the last steps that trace.json keeps; 0 = no trace
  bool nvtx = false;             // ranges for Nsight Systems
  std::string provoke = "none";  // a fault to inject

  bool provokes() const { return provoke != "none"; }
  bool operator==(const TrainSettings&) const = default;
};

/// The section `checkpoint`.
struct CheckpointSettings {
  int64_t every_epochs = 1;
  int64_t every_steps = 0;
  double every_minutes = 0;
  int64_t keep = 3;
  bool best = true;
  std::chrono::milliseconds before_deadline{60'000};

  bool operator==(const CheckpointSettings&) const = default;
};

/// A whole config: its sections in the file's order.
struct Settings {
  RunSettings run;
  LaunchOptions launch;
  TaskSettings task;
  DataSettings data;
  ModelSettings model;
  DdpSettings ddp;
  ParallelSettings parallel;
  DataParallelSettings data_parallel;
  OptimSettings optim;
  ScheduleSettings schedule;
  TrainSettings train;
  CheckpointSettings checkpoint;

  bool operator==(const Settings&) const = default;

  /// What of it a task may read; refers to these settings.
  TaskConfig for_task() const { return {task, data, model, run.seed, train.eval_every != 0}; }
};

}  // namespace lockstep
