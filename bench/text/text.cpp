// bench_text SAMPLES VOCABULARY CACHE BATCH: seconds from a file of texts to its last batch, for run.py.
//
// Prints {"seconds": ..., "samples": ..., "tokens": ..., "sha256": of all batches}, by which run.py sees that
// Python's are the same. The first call for a CACHE folder makes the tokens, the next ones find them.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/data/loader.h"
#include "lockstep/tasks/task.h"

namespace lockstep {
namespace {

Settings settings_for(char** words) {
  Settings settings;
  settings.task.name = "text";
  settings.task.eval_file = settings.task.file = words[1];
  settings.task.text = {"sentence1", "sentence2"};
  settings.task.label = "gold_label";
  settings.task.vocabulary = words[2];
  settings.task.cache = words[3];
  settings.task.max_length = 128;
  settings.data.workers = 0;
  return settings;
}

void add(base::Sha256& sum, const at::Tensor& tensor) {
  sum.add(tensor.const_data_ptr(), tensor.nbytes());
}

void measure(char** words) {
  const auto begin = std::chrono::steady_clock::now();
  const auto task = make_task(settings_for(words));
  const auto set = task->data(settings_for(words), {}).train;
  const ShardSampler sampler(set->size(), 0, 1);
  Loader loader(set, sampler, {.batch_size = std::atoi(words[4])});
  int64_t tokens = 0;
  for (auto& batch : loader) tokens += batch.input.numel();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;

  base::Sha256 everything;
  for (auto& batch : loader) {
    add(everything, batch.input);
    add(everything, batch.target);
  }
  std::printf("{\"seconds\": %.4f, \"samples\": %lld, \"tokens\": %lld, \"sha256\": \"%s\"}\n", took.count(),
              static_cast<long long>(set->size()), static_cast<long long>(tokens), everything.hex().c_str());
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 5)
    return std::fprintf(stderr, "usage: bench_text SAMPLES VOCABULARY CACHE BATCH\n"), lockstep::kBadInput;
  try {
    at::set_num_threads(1);
    lockstep::measure(argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", lockstep::describe(error).c_str());
    return lockstep::exit_status(error);
  }
}
