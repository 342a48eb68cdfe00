#pragma once
// A folder of images by class, as torchvision's ImageFolder reads it: what is in it, in an order that no
// file system decides.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/pixels/resample.h"

namespace lockstep::data {

/// Where the images lie: FOLDER/train/CLASS and FOLDER/val/CLASS (or eval, or test), or FOLDER/CLASS alone.
struct ImageFolders {
  std::string train;
  std::string eval;  // empty = a part of train
};
/// InputError where there is no such folder.
ImageFolders image_layout(const std::string& root);

/// The names of the class folders, sorted. InputError where there are none, or one is not UTF-8.
std::vector<std::string> class_folders(const std::string& root);

/// Files below a folder, sorted as ImageFolder sorts them.
struct FoundImages {
  std::string root;
  std::vector<std::string> files;                // under root
  std::vector<int64_t> labels;                   // a class's place in `classes`
  std::map<std::string, int64_t> left_out = {};  // by their ending: files that are no images by name
};

/// .png, .jpg and .jpeg (in any case) below these of the classes' folders. InputError for a folder that
/// cannot be read, and for links that lead in a circle.
FoundImages find_images(const std::string& root, const std::vector<std::string>& folders,
                        const std::vector<std::string>& classes);

/// Of one folder without classes; every label is 0.
FoundImages find_images(const std::string& folder);

/// "3 files that are neither .png nor .jpg were not read: 2 .txt, 1 .webp"; empty where there are none.
std::string left_out_text(const FoundImages& found);

// Files and their classes as tensors, so that a node's ranks share one list of a million of them.

/// Paths under a root (or none), one after the other in `names`.
struct ImageList {
  std::string root;
  at::Tensor names;   // uint8, the paths without anything between them
  at::Tensor ends;    // int64 [files], where each one ends in `names`
  at::Tensor labels;  // int64 [files]; undefined where there are none

  int64_t size() const { return ends.size(0); }
  std::string file(int64_t index) const;
  std::string path(int64_t index) const { return root.empty() ? file(index) : root + "/" + file(index); }
};

/// `labels` may be empty.
ImageList image_list(const std::string& root, const std::vector<std::string>& files,
                     const std::vector<int64_t>& labels);

// Images read from their files as a batch is made: scaled, normalised, and for training drawn again each
// epoch.

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

// The same work for each of many things, by several threads.

/// Calls `work(index)` for 0 to count - 1, in any order, and returns when all are done. `make` gives each
/// thread a `work` of its own. What one throws ends the others soon, and is thrown here.
void parallel_each(int64_t count, int threads, const std::function<std::function<void(int64_t)>()>& make);

/// As many as this process has cores, and no fewer than `least`: those that wait for a disk need none.
int thread_count(int least = 1);

// Which of many images are damaged, before anything is trained on them.

/// How well one looks: at each file's first and last bytes, or at all its pixels.
enum class ImageCheck { ends, pixels };

struct Damage {
  int64_t index;  // in the list
  std::string what, where;
};

/// In the list's order, by several threads. InputError where this lockstep lacks a library for some.
std::vector<Damage> damaged_images(const FoundImages& images, ImageCheck check);

/// Takes them out of the list.
void leave_out(const std::vector<Damage>& damaged, FoundImages& images);

}  // namespace lockstep::data
