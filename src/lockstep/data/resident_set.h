#pragma once
// A set with all samples on one device. Batches are gathered there; only the sample numbers are copied.

#include "lockstep/data/dataset.h"

namespace lockstep::data {

class ResidentSet : public Dataset {
 public:
  /// Copies the samples. Throws the device's error if they do not fit.
  ResidentSet(const DatasetTensors& set, at::Device device);
  int64_t size() const override { return samples_.size(0); }
  /// The batches of the original set, bit for bit, on the device. Asynchronous.
  Batch get(at::ArrayRef<int64_t> indices, bool pinned = false) const override;
  /// For sample numbers on the device, int64 [n].
  Batch gather(const at::Tensor& numbers) const;
  /// Its memory on the device.
  int64_t bytes() const;
  at::Device device() const { return samples_.device(); }

 private:
  at::Tensor input_of(const at::Tensor& numbers) const;

  at::Tensor samples_, targets_;
  at::Tensor table_;      // flat; undefined if samples are used unchanged
  at::Tensor beginning_;  // of each channel in the table, int32 [channels, 1, 1]; undefined with one channel
};

}  // namespace lockstep::data
