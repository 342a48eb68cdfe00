// bench_images FOLDER SIZE WORKERS ROUNDS: seconds that a loader takes to read a folder of images, for
// run.py.
//
// Prints {"seconds": [of each round], "images": ..., "sha256": of the floats in order}, by which run.py sees
// that torchvision's are the same.
#include <ATen/ATen.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/format.h"
#include "lockstep/data/image_folder.h"
#include "lockstep/data/image_set.h"
#include "lockstep/data/loader.h"

namespace lockstep {
namespace {

constexpr int64_t kBatch = 32;

void measure(const char* folder, int64_t size, int64_t workers, int rounds) {
  const auto classes = data::class_folders(folder);
  const auto found = data::find_images(folder, classes, classes);
  const auto set = std::make_shared<data::ImageFolderSet>(
      data::image_list(folder, found.files, found.labels),
      data::ImageLook{.height = size,
                      .width = size,
                      .table = normalize_table({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225})});
  const ShardSampler all(set->size(), 0, 1);
  std::string seconds, sha;
  for (int round = 0; round <= rounds; ++round) {
    Loader loader(set, all, {.batch_size = kBatch, .workers = workers});
    base::Sha256 sum;
    const auto begin = std::chrono::steady_clock::now();
    for (auto& batch : loader) {
      if (round == 0) sum.add(batch.input.const_data_ptr(), batch.input.nbytes());
    }
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (round == 0) {
      sha = sum.hex();  // this round warms the page cache, too
    } else {
      seconds += format("{}{}", round > 1 ? ", " : "", took);
    }
  }
  std::printf("{\"seconds\": [%s], \"images\": %lld, \"sha256\": \"%s\"}\n", seconds.c_str(),
              static_cast<long long>(set->size()), sha.c_str());
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 5)
    return std::fprintf(stderr, "usage: bench_images FOLDER SIZE WORKERS ROUNDS\n"), lockstep::kBadInput;
  try {
    lockstep::measure(argv[1], std::atoll(argv[2]), std::atoll(argv[3]), std::atoi(argv[4]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", lockstep::describe(error).c_str());
    return lockstep::exit_status(error);
  }
  return lockstep::kDone;
}
