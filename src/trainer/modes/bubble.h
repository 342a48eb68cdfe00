#pragma once
// How long the stages of a pipeline wait, measured, beside what the formula says. On GPUs the formula alone:
// a host's clock sees when work is handed to a GPU, not when it is done.

#include <chrono>
#include <cstdint>
#include <string>

#include "lockstep/parallel/mesh.h"

namespace lockstep::train {

class Bubble {
 public:
  Bubble(const Mesh& mesh, int64_t micro_batches) : mesh_(mesh), micro_batches_(micro_batches) {}

  /// Around a batch; the first one, which pays for libtorch's start, is not counted.
  void begin() { begin_ = Clock::now(); }
  void end();
  /// This stage's own work.
  template <class Work>
  void busy(const Work& work) {
    const auto begin = Clock::now();
    work();
    busy_ += Seconds(Clock::now() - begin).count();
  }
  /// For the log; empty before the second batch. Collective.
  std::string words() const;

 private:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;

  const Mesh& mesh_;
  int64_t micro_batches_;
  Clock::time_point begin_{};
  double busy_ = 0, elapsed_ = 0;
  int64_t batches_ = 0;
};

}  // namespace lockstep::train
