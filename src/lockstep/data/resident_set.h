#pragma once
// A set whose samples lie on one device, all of them: batches are gathered there, and only their numbers
// travel.

#include "lockstep/data/dataset.h"

namespace lockstep::data {

class ResidentSet : public Dataset {
 public:
  /// Copies the samples there. The device's own error where they do not fit.
  ResidentSet(const WholeSet& set, at::Device device);
  int64_t size() const override { return samples_.size(0); }
  /// The same batches as the set it was made of, to the bit, on the device. Not waited for.
  Batch get(at::ArrayRef<int64_t> indices, bool pinned = false) const override;
  /// Of sample numbers that lie on the device, int64 [n].
  Batch gather(const at::Tensor& numbers) const;
  /// What it takes there.
  int64_t bytes() const;
  at::Device device() const { return samples_.device(); }

 private:
  at::Tensor input_of(const at::Tensor& numbers) const;

  at::Tensor samples_, targets_;
  at::Tensor table_;      // flat; undefined where samples are used as they are
  at::Tensor beginning_;  // of each channel's part of it, int32 [channels, 1, 1]; undefined with one channel
};

}  // namespace lockstep::data
