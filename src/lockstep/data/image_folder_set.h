#pragma once
// Images read from their files as a batch is made: scaled, normalised, and for training drawn again each
// epoch.

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>

#include "lockstep/data/dataset.h"
#include "lockstep/data/image_list.h"
#include "lockstep/data/pixels/augment.h"

namespace lockstep::data {

/// How an image becomes a sample.
struct ImageLook {
  int64_t height = 0, width = 0;
  at::Tensor table = {};  // what each byte becomes, [3, 256]: normalize_table()
  Augment augment = {};   // in an epoch
  uint64_t seed = 0;      // of what is drawn
};

class ImageFolderSet : public Dataset {
 public:
  ImageFolderSet(ImageList list, ImageLook look) : list_(std::move(list)), look_(std::move(look)) {}
  int64_t size() const override { return list_.size(); }
  /// input float [n, 3, height, width], target int64 [n]. DamagedImage where a file cannot be read.
  Batch get(at::ArrayRef<int64_t> indices, bool pinned = false) const override;
  /// With what is drawn; nullptr where nothing is.
  std::shared_ptr<const Dataset> in_epoch(int64_t epoch) const override;
  /// Its file.
  std::string name_of(int64_t index) const override { return list_.file(index); }

 private:
  View view_of(int64_t height, int64_t width, int64_t index) const;

  ImageList list_;
  ImageLook look_;
  std::optional<int64_t> epoch_;
};

}  // namespace lockstep::data
