#pragma once
// What the data room's tests share.

#include <ATen/ATen.h>

#include <string>

#include "lockstep/data/node_share.h"
#include "lockstep/data/pixels/image_file.h"

namespace lockstep::test {

inline std::string bytes_of(const data::Pixels& image) {
  return {reinterpret_cast<const char*>(image.rgb.data()),
          static_cast<size_t>(image.height * image.width * 3)};
}

}  // namespace lockstep::test
