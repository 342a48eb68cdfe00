#include "lockstep/data/image_folder_set.h"

#include <ATen/ATen.h>

#include "lockstep/data/pixels/image_file.h"

namespace lockstep::data {
namespace {

// Planes of floats from rows of bytes; mirrored left to right where `flipped`.
void lay_out(const Pixels& image, bool flipped, const float* table, float* out) {
  const int64_t step = flipped ? -3 : 3;
  const int64_t start = flipped ? 3 * (image.width - 1) : 0;
  for (int64_t c = 0; c < 3; ++c, table += 256) {
    for (int64_t y = 0; y < image.height; ++y) {
      const uint8_t* in = image.row(y) + start + c;
      for (int64_t x = 0; x < image.width; ++x, in += step) *out++ = table[*in];
    }
  }
}

}  // namespace

View ImageFolderSet::view_of(int64_t height, int64_t width, int64_t index) const {
  if (!epoch_) return middle_view(height, width, look_.height, look_.width);
  return drawn_view(height, width, look_.height, look_.width, look_.augment, look_.seed, *epoch_, index);
}

Batch ImageFolderSet::get(at::ArrayRef<int64_t> indices, bool pinned) const {
  const auto count = static_cast<int64_t>(indices.size());
  const auto options = at::TensorOptions().pinned_memory(pinned);
  Batch batch;
  batch.input = at::empty({count, 3, look_.height, look_.width}, options.dtype(at::kFloat));
  float* out = batch.input.mutable_data_ptr<float>();
  ImageReader reader;
  Resampler resampler;
  for (const int64_t index : indices) {
    const auto& image = reader.read(list_.path(index));
    const auto [scaling, flipped] = view_of(image.height, image.width, index);
    lay_out(resampler.scale(image, scaling), flipped, look_.table.const_data_ptr<float>(), out);
    out += 3 * look_.height * look_.width;
  }
  if (!list_.labels.defined()) return batch;
  batch.target = at::empty({count}, options.dtype(at::kLong));
  const auto* labels = list_.labels.const_data_ptr<int64_t>();
  int64_t* target = batch.target.mutable_data_ptr<int64_t>();
  for (const int64_t index : indices) *target++ = labels[index];
  return batch;
}

std::shared_ptr<const Dataset> ImageFolderSet::in_epoch(int64_t epoch) const {
  if (!look_.augment.crop && !look_.augment.flip) return nullptr;
  auto drawn = std::make_shared<ImageFolderSet>(*this);
  drawn->epoch_ = epoch;
  return drawn;
}

}  // namespace lockstep::data
