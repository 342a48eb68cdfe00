#pragma once
// Batches in the sampler's order, made ahead by background workers; the order never depends on the workers.

#include <concepts>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>

#include "lockstep/data/dataset.h"
#include "lockstep/data/sampler.h"

namespace lockstep {

/// How a Loader makes batches.
struct LoaderOptions {
  int64_t batch_size = 1;
  int64_t workers = 0;  // background threads; 0 = made when asked for
  bool pin_memory = false;
  bool drop_last = false;  // the last batch, where it is not full
  int64_t prefetch = 2;    // batches ahead, a worker
};

/// `for (auto& [x, y] : loader)`. Each begin() is a new pass over sampler.order() and ends the one before.
/// The sampler must outlive the loader.
class Loader {
 public:
  Loader(std::shared_ptr<const Dataset> dataset, const Sampler& sampler, LoaderOptions options);
  Loader(Loader&&) noexcept;
  ~Loader();

  /// How many batches a whole pass has.
  int64_t batches() const;
  /// Where the next begin() starts, in batches; passes after that start at 0 again.
  void start_at(int64_t batch) { start_ = batch; }

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
  /// A new pass, from start_at()'s batch.
  iterator begin();
  /// Which samples the pass under way has, first to last; none where there is none.
  SampleOrder order() const;
  /// Has a worker made the next batch of the pass, so that nobody waits for it?
  bool is_ahead() const;
  /// Past the last batch.
  iterator end() { return iterator(); }

 private:
  struct Pass;
  std::shared_ptr<const Dataset> dataset_;
  const Sampler* sampler_;
  LoaderOptions options_;
  int64_t start_ = 0;
  std::unique_ptr<Pass> pass_;
};

/// `auto batches = lockstep::loader(set, sampler, {.batch_size = 32});`
inline Loader loader(std::shared_ptr<const Dataset> set, const Sampler& sampler, LoaderOptions options = {}) {
  return Loader(std::move(set), sampler, options);
}
/// The same for a set at hand, whose copies share their samples.
template <std::derived_from<Dataset> Set>
Loader loader(const Set& set, const Sampler& sampler, LoaderOptions options = {}) {
  return Loader(std::make_shared<Set>(set), sampler, options);
}
/// The loader asks the sampler at every pass.
template <class Set>
Loader loader(const Set& set, const Sampler&& sampler, LoaderOptions options = {}) = delete;

}  // namespace lockstep
