#pragma once
// Batches in the sampler's order, prepared by background workers. Their number does not affect the order.

#include <concepts>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>

#include "lockstep/data/dataset.h"
#include "lockstep/data/sampler.h"

namespace lockstep {

/// How a Loader assembles batches.
struct LoaderOptions {
  int64_t batch_size = 1;
  int64_t workers = 0;  // background threads; 0 = the calling thread assembles the batches
  bool pin_memory = false;
  bool drop_last = false;  // drops the last batch if it is not full
  int64_t prefetch = 2;    // batches prepared in advance, per worker
};

/// Iterates over batches: `for (auto& [x, y] : loader)`. Each begin() starts a pass over sampler.order() and
/// ends the previous pass. The sampler must outlive the loader.
class Loader {
 public:
  Loader(std::shared_ptr<const Dataset> dataset, const Sampler& sampler, LoaderOptions options);
  Loader(Loader&&) noexcept;
  ~Loader();

  /// The number of batches in a full pass.
  int64_t batches() const;

  /// One pass over the batches.
  class iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using pointer = Batch*;
    using reference = Batch&;

    Batch& operator*() const { return *batch_; }
    Batch* operator->() const { return batch_; }
    iterator& operator++();
    void operator++(int) { ++*this; }
    bool operator==(const iterator& other) const { return batch_ == other.batch_; }

   private:
    friend class Loader;
    explicit iterator(Loader* loader = nullptr);
    Loader* loader_ = nullptr;
    Batch* batch_ = nullptr;  // null = past the end
  };
  /// Starts a new pass.
  iterator begin();
  /// The samples of the current pass; empty outside of a pass.
  SampleOrder order() const;
  /// Whether a worker has finished the next batch.
  bool is_ahead() const;
  /// Past the last batch.
  iterator end() { return iterator(); }

 private:
  struct Pass;
  std::shared_ptr<const Dataset> dataset_;
  const Sampler* sampler_;
  LoaderOptions options_;
  std::unique_ptr<Pass> pass_;
};

/// Creates a loader: `auto batches = lockstep::loader(set, sampler, {.batch_size = 32});`
inline Loader loader(std::shared_ptr<const Dataset> set, const Sampler& sampler, LoaderOptions options = {}) {
  return Loader(std::move(set), sampler, options);
}
/// The same for a set by value. Copies of a set share their samples.
template <std::derived_from<Dataset> Set>
Loader loader(const Set& set, const Sampler& sampler, LoaderOptions options = {}) {
  return Loader(std::make_shared<Set>(set), sampler, options);
}
/// Not for a temporary: the loader needs the sampler in every pass.
template <class Set>
Loader loader(const Set& set, const Sampler&& sampler, LoaderOptions options = {}) = delete;

}  // namespace lockstep
