#include "lockstep/data/image_set.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep {

// The operations are torchvision's own, so that the bits are its as well.
at::Tensor normalize_table(const std::vector<double>& mean, const std::vector<double>& std) {
  const auto bytes = at::arange(256, at::kByte).to(at::kFloat).div(255);
  const auto column = [](const std::vector<double>& values) {
    return at::tensor(values, at::kDouble).to(at::kFloat).unsqueeze(1);
  };
  return bytes.sub(column(mean)).div_(column(std)).contiguous();
}

ImageSet::ImageSet(at::Tensor images, at::Tensor labels, at::Tensor table)
    : images_(std::move(images)), labels_(std::move(labels)), table_(std::move(table)) {
  if (images_.size(1) != table_.size(0)) {
    throw InputError(
        format("mean and std are given for {} channels, the images have {}", table_.size(0), images_.size(1)),
        "task.mean, task.std", "give one number a channel, or set task.normalize: standard");
  }
}

Batch ImageSet::get(at::ArrayRef<int64_t> indices, bool pinned) const {
  const auto count = static_cast<int64_t>(indices.size());
  const int64_t channels = images_.size(1), plane = images_.size(2) * images_.size(3);
  const auto options = at::TensorOptions().pinned_memory(pinned);
  Batch batch;
  batch.input = at::empty({count, channels, images_.size(2), images_.size(3)}, options.dtype(at::kFloat));
  const auto* bytes = images_.const_data_ptr<uint8_t>();
  const float* table = table_.const_data_ptr<float>();
  float* out = batch.input.mutable_data_ptr<float>();
  for (int64_t index : indices) {
    const uint8_t* in = bytes + index * channels * plane;
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t i = 0; i < plane; ++i) *out++ = table[c * 256 + *in++];
    }
  }
  if (!labels_.defined()) return batch;
  batch.target = at::empty({count}, options.dtype(at::kLong));
  const auto* labels = labels_.const_data_ptr<uint8_t>();
  int64_t* target = batch.target.mutable_data_ptr<int64_t>();
  for (int64_t index : indices) *target++ = labels[index];
  return batch;
}

std::optional<WholeSet> ImageSet::whole() const {
  return WholeSet{images_, labels_.defined() ? labels_.to(at::kLong) : labels_, table_};
}

}  // namespace lockstep
