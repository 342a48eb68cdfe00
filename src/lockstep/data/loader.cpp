#include "lockstep/data/loader.h"

#include <ATen/ATen.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep {

// One pass over the order. Batch n goes to slot n % slots; workers take the numbers in turn and never run
// more than `slots` batches ahead of the consumer.
struct Loader::Pass {
  Pass(const Dataset& dataset, const Sampler& sampler, const LoaderOptions& options, int64_t batches)
      : dataset(dataset),
        order(sampler.order()),
        options(options),
        batches(batches),
        slots(options.workers * std::max<int64_t>(options.prefetch, 1)) {
    try {
      for (int64_t i = 0; i < std::min(options.workers, batches); ++i)
        workers.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      // The system has no more threads: those that run will do. Without any, the consumer makes the batches.
    }
  }

  ~Pass() {
    {
      std::lock_guard lock(mutex);
      stopped = true;
    }
    changed.notify_all();
    for (auto& worker : workers) worker.join();
  }

  Batch make(int64_t number) const {
    const int64_t begin = number * options.batch_size;
    const int64_t end = std::min(begin + options.batch_size, order.size());
    std::vector<int64_t> indices(end - begin);
    for (int64_t i = begin; i < end; ++i) indices[i - begin] = order[i];
    Batch batch = dataset.get(indices, options.pin_memory);
    batch.indices = std::move(indices);
    // what the data set could not put into page-locked memory itself
    for (auto* tensor : {&batch.input, &batch.target})
      if (options.pin_memory && tensor->defined() && !tensor->is_pinned()) *tensor = tensor->pin_memory();
    return batch;
  }

  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock,
                   [this] { return stopped || next_taken == batches || next_taken < next_given + window(); });
      if (stopped || next_taken == batches) return;
      Slot& slot = slots[next_taken % window()];
      const int64_t number = next_taken++;
      lock.unlock();
      Slot made;
      try {
        made.batch = make(number);
      } catch (...) {
        made.error = std::current_exception();
      }
      made.ready = true;
      lock.lock();
      slot = std::move(made);
      changed.notify_all();
    }
  }

  // The next batch, or null at the end.
  Batch* next() {
    if (next_given == batches) return nullptr;
    if (workers.empty()) {
      current = make(next_given++);
      return &current;
    }
    std::unique_lock lock(mutex);
    Slot& slot = slots[next_given % window()];
    changed.wait(lock, [&] { return slot.ready; });
    Slot taken = std::exchange(slot, {});
    ++next_given;
    lock.unlock();
    changed.notify_all();
    if (taken.error) std::rethrow_exception(taken.error);
    current = std::move(taken.batch);
    return &current;
  }

  bool is_ahead() {
    if (workers.empty() || next_given == batches) return false;
    const std::lock_guard lock(mutex);
    return slots[next_given % window()].ready;
  }

  struct Slot {
    bool ready = false;
    Batch batch;
    std::exception_ptr error;
  };

  int64_t window() const { return static_cast<int64_t>(slots.size()); }

  const Dataset& dataset;
  const SampleOrder order;
  const LoaderOptions options;
  std::mutex mutex;
  std::condition_variable changed;
  int64_t next_taken = 0;  // by a worker
  int64_t next_given = 0;  // to the consumer
  const int64_t batches;
  bool stopped = false;
  std::vector<Slot> slots;
  Batch current;
  std::vector<std::thread> workers;
};

Loader::Loader(std::shared_ptr<const Dataset> dataset, const Sampler& sampler, LoaderOptions options)
    : dataset_(std::move(dataset)), sampler_(&sampler), options_(options) {
  if (options_.batch_size < 1)
    throw InputError(format("batch_size must be at least 1 (got {})", options_.batch_size),
                     "LoaderOptions::batch_size", "set it to 1 or more");
  if (options_.workers < 0)
    throw InputError(format("workers must be at least 0 (got {})", options_.workers),
                     "LoaderOptions::workers", "set it to 0 or more");
}

Loader::Loader(Loader&&) noexcept = default;
Loader::~Loader() = default;

int64_t Loader::batches() const {
  const int64_t samples = sampler_->num_samples();
  return options_.drop_last ? samples / options_.batch_size
                            : (samples + options_.batch_size - 1) / options_.batch_size;
}

Loader::iterator Loader::begin() {
  pass_.reset();  // a pass left early ends here
  pass_ = std::make_unique<Pass>(*dataset_, *sampler_, options_, batches());
  return iterator(this);
}

SampleOrder Loader::order() const {
  return pass_ ? pass_->order : SampleOrder(std::vector<int64_t>());
}

bool Loader::is_ahead() const {
  return pass_ && pass_->is_ahead();
}

Loader::iterator::iterator(Loader* loader) : loader_(loader) {
  if (loader_) ++*this;
}

Loader::iterator& Loader::iterator::operator++() {
  batch_ = loader_->pass_->next();
  if (!batch_) loader_->pass_.reset();
  return *this;
}

}  // namespace lockstep
