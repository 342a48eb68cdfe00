#pragma once
// Batches on their way to a GPU: on a stream of their own, so that the next one travels while the step before
// it computes. Elsewhere they are where they are wanted.

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <optional>

#include "lockstep/data/dataset.h"

namespace lockstep::train {

class BatchCopies {
 public:
  struct Placed {
    at::Tensor input, target;
  };

  explicit BatchCopies(at::Device device);

  /// Does a copy take place while the device computes?
  bool overlap() const { return stream_.has_value(); }
  /// Sends a batch on its way, if there is one: the next that is taken.
  void begin(const Batch* batch);
  /// The batch on the device, for what is launched from now on.
  Placed take(const Batch& batch);

 private:
  // `of`, which is read until the copy is done, stays until then.
  struct Copy {
    at::Tensor of;
    Placed placed;
    c10::Event done;
  };
  Copy send(const Batch& batch) const;
  at::Tensor copied(const at::Tensor& tensor) const;

  const at::Device device_;
  std::optional<c10::Stream> stream_;
  std::optional<Copy> next_;
};

}  // namespace lockstep::train
