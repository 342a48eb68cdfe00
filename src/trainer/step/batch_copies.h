#pragma once
// Batches on their way to a GPU: on a stream of their own, so that the next one travels while the step before
// it computes. Elsewhere they are where they are wanted.

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <deque>
#include <memory>
#include <optional>

#include "lockstep/data/dataset.h"

namespace lockstep::train {

/// The tensor itself where it lies there already.
at::Tensor on_device(const at::Tensor& tensor, at::Device device);

class BatchCopies {
 public:
  struct Placed {
    at::Tensor input, target;
  };

  explicit BatchCopies(at::Device device);
  /// Waits for the copies under way.
  ~BatchCopies();
  BatchCopies(const BatchCopies&) = delete;
  BatchCopies& operator=(const BatchCopies&) = delete;

  /// Does a copy take place while the device computes?
  bool overlap() const { return stream_.has_value(); }
  /// Sends a batch on its way, if there is one: the next that is taken. What fails here is tried again then.
  void begin(const Batch* batch);
  /// The batch on the device, for what is launched from now on.
  Placed take(const Batch& batch);

 private:
  // What a copy reads stays until it is done.
  struct Source {
    at::Tensor input, target;
    std::shared_ptr<const c10::Event> done;
  };
  struct Copy {
    Source of;
    Placed placed;
  };
  Copy send(const Batch& batch);
  void let_go();

  const at::Device device_;
  std::optional<c10::Stream> stream_;
  std::optional<Copy> next_;
  std::deque<Source> under_way_;
};

}  // namespace lockstep::train
