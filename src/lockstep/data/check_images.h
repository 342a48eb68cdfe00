#pragma once
// Which of many images are damaged, before anything is trained on them.

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/image_folder.h"

namespace lockstep::data {

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
