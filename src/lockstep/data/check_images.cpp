#include "lockstep/data/check_images.h"

#include <algorithm>
#include <memory>
#include <mutex>

#include "lockstep/data/parallel_each.h"
#include "lockstep/data/pixels/image_file.h"

namespace lockstep::data {

std::vector<Damage> damaged_images(const FoundImages& images, ImageCheck check) {
  constexpr int kLeastThreads = 8;  // first and last bytes: mostly waiting
  std::vector<Damage> damaged;
  std::mutex mutex;
  const auto make = [&] {
    return [&, reader = std::make_shared<ImageReader>()](int64_t i) {
      const auto path = images.root + "/" + images.files[i];
      try {
        if (check == ImageCheck::ends) {
          reader->check(path);
        } else {
          reader->read(path);
        }
      } catch (const DamagedImage& bad) {
        const std::lock_guard lock(mutex);
        damaged.push_back({i, bad.what(), bad.where()});
      }
    };
  };
  parallel_each(static_cast<int64_t>(images.files.size()),
                thread_count(check == ImageCheck::ends ? kLeastThreads : 1), make);
  std::sort(damaged.begin(), damaged.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
  return damaged;
}

void leave_out(const std::vector<Damage>& damaged, FoundImages& images) {
  size_t kept = 0, next = 0;
  for (size_t i = 0; i < images.files.size(); ++i) {
    if (next < damaged.size() && damaged[next].index == static_cast<int64_t>(i)) {
      ++next;
      continue;
    }
    if (kept != i) images.files[kept] = std::move(images.files[i]);
    images.labels[kept++] = images.labels[i];
  }
  images.files.resize(kept);
  images.labels.resize(kept);
}

}  // namespace lockstep::data
