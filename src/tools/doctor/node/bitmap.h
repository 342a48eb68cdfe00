#pragma once
// hwloc's sets of hardware threads, with an owner.

#include <hwloc.h>

#include <memory>

namespace lockstep::doctor {

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

}  // namespace lockstep::doctor
