#pragma once
// A folder of images by class, as torchvision's ImageFolder reads it: what is in it, in an order that no
// file system decides.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

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

}  // namespace lockstep::data
