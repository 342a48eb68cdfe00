#pragma once
// A folder of images by class, in the order of torchvision's ImageFolder, read when a batch is assembled.

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/node_share.h"
#include "lockstep/data/pixels/image_file.h"
#include "lockstep/data/pixels/resample.h"

namespace lockstep::data {

/// A zip archive of such folders, not compressed.
struct ImageArchive {
  std::map<std::string, std::array<int64_t, 2>> files;  // ARCHIVE/PATH: where it begins and ends in `bytes`
  at::Tensor bytes;
};
/// Leaves out a folder around all others. Throws InputError if the archive is damaged or compressed.
ImageArchive open_image_archive(const std::string& path, Arena& arena);

// Folders are on a disk, or in the archive.

/// The images are in FOLDER/train/CLASS and FOLDER/val/CLASS (or eval, or test), or in FOLDER/CLASS.
struct ImageFolders {
  std::string train;
  std::string eval;  // empty = a part of train
};
/// Throws InputError if there is no such folder.
ImageFolders image_layout(const std::string& root, const ImageArchive* archive = nullptr);

/// The names of the class folders, sorted. Throws InputError if there are none, or if one is not UTF-8.
std::vector<std::string> class_folders(const std::string& root, const ImageArchive* archive = nullptr);

/// The images of a folder, in ImageFolder's order.
struct FoundImages {
  std::string root;
  std::vector<std::string> files;                   // under root
  std::vector<int64_t> labels;                      // index in `classes`; empty without classes
  int64_t left_out = 0;                             // number of other files
  std::vector<std::array<int64_t, 2>> places = {};  // ImageArchive's, and its bytes
  at::Tensor bytes = {};
};

/// The .png, .jpg and .jpeg files (in any case) below the class folders. Throws InputError for a folder
/// that cannot be read or is not in `classes`, and for circular links.
FoundImages find_images(const std::string& root, const std::vector<std::string>& classes,
                        const ImageArchive* archive = nullptr);

/// The images of one folder, without classes.
FoundImages find_images(const std::string& folder);

/// The same as tensors, so that the ranks of a node can share a long list.
struct ImageList {
  std::string root;
  at::Tensor names;   // uint8, the paths one after the other
  at::Tensor ends;    // int64 [files], the end of each path in `names`
  at::Tensor labels;  // int64 [files]; undefined without classes
  at::Tensor places;  // int64 [files, 2] in an archive, else empty
  at::Tensor bytes;   // of the archive

  int64_t size() const { return ends.size(0); }
  std::string file(int64_t index) const;
  std::string path(int64_t index) const { return root.empty() ? file(index) : root + "/" + file(index); }
  /// Its pixels, until the reader's next call. Throws what ImageReader::read() does.
  const Pixels& read(int64_t index, ImageReader& reader) const;
};
ImageList image_list(const FoundImages& found);

/// How an image becomes a sample.
struct ImageTransform {
  int64_t height = 0, width = 0;
  at::Tensor table = {};  // the value of each byte, [3, 256]: normalize_table()
  Augment augment = {};   // in each epoch
  uint64_t seed = 0;      // for random augmentation
};

class ImageFolderSet : public Dataset {
 public:
  ImageFolderSet(ImageList list, ImageTransform look) : list_(std::move(list)), look_(std::move(look)) {}
  int64_t size() const override { return list_.size(); }
  /// input float [n, 3, height, width], target int64 [n]. DamagedImage if a file cannot be read.
  Batch get(at::ArrayRef<int64_t> indices, bool pinned = false) const override;
  /// The augmented set; nullptr without augmentation.
  std::shared_ptr<const Dataset> in_epoch(int64_t epoch) const override;
  /// The sample's file.
  std::string name_of(int64_t index) const override { return list_.file(index); }

 private:
  ImageList list_;
  ImageTransform look_;
  std::optional<int64_t> epoch_;
};

/// Calls `work(index)` for 0 to count - 1, in any order, from several threads, and throws the error of one of
/// them. `make` creates a separate `work` for each thread.
void parallel_each(int64_t count, int threads, const std::function<std::function<void(int64_t)>()>& make);

/// The number of cores, but at least `least`, because threads that wait for a disk need no core.
int thread_count(int least = 1);

struct Damage {
  int64_t index;  // in the list
  std::string what, where;
};

/// Removes damaged images from the list, and returns them in order. Checks the first and last bytes of each
/// file, or `all_pixels`. Throws InputError if this build lacks a library for some.
std::vector<Damage> remove_damaged(FoundImages& images, bool all_pixels);

}  // namespace lockstep::data
