// A small task that takes its time where the environment says so, in seconds: SLOW_LOAD to load the data,
// SLOW_STEP for a training batch, SLOW_EVAL for a batch of the evaluation. AT_EXIT: a file that its
// destructor makes. LOADING: a file that the loading rank makes before it sleeps. BAD_BATCH: every batch of
// more than 8 samples is an error, so that a rank meets it alone.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/data/node_share.h"
#include "lockstep/data/table_set.h"
#include "lockstep/tasks/task.h"

namespace {

void sleep_for(const char* name) {
  const char* seconds = std::getenv(name);
  if (seconds) std::this_thread::sleep_for(std::chrono::duration<double>(std::atof(seconds)));
}

void make_file(const char* name) {
  const char* path = std::getenv(name);
  if (std::FILE* file = path ? std::fopen(path, "w") : nullptr) std::fclose(file);
}

struct AtExit {
  ~AtExit() { make_file("AT_EXIT"); }
} at_exit;

class SlowSet : public lockstep::TableSet {
 public:
  SlowSet(at::Tensor features, at::Tensor labels, const char* delay)
      : TableSet(std::move(features), std::move(labels)), delay_(delay) {}
  lockstep::Batch get(at::ArrayRef<int64_t> indices, bool pinned) const override {
    sleep_for(delay_);
    if (indices.size() > 8 && std::getenv("BAD_BATCH")) throw lockstep::InputError("a bad batch");
    return TableSet::get(indices, pinned);
  }

 private:
  const char* delay_;
};

class SlowTask : public lockstep::Task {
 public:
  lockstep::TaskData data(const lockstep::TaskConfig& settings, const lockstep::NodeShare& node) override {
    lockstep::share_on_node(node, [](lockstep::Arena&) {
      make_file("LOADING");
      sleep_for("SLOW_LOAD");
      return lockstep::SharedSet();
    });
    lockstep::TaskData data;
    data.train = points(240, settings.seed, "SLOW_STEP");
    data.eval = points(81, settings.seed + 1, "SLOW_EVAL");  // odd: ranks have shares of two sizes
    data.input_shape = {2};
    data.class_names = {"left", "right"};
    return data;
  }

 private:
  static std::shared_ptr<const lockstep::Dataset> points(int64_t count, int64_t seed, const char* delay) {
    auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
    const auto place = at::randn({count, 2}, generator);
    return std::make_shared<SlowSet>(place, place.select(1, 0).gt(0).to(at::kLong), delay);
  }
};

}  // namespace

LOCKSTEP_TASK(SlowTask)
