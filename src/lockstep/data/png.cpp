#include "lockstep/data/png.h"

#include <ATen/ATen.h>

#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/format.h"

#ifdef LOCKSTEP_PNG
#include <png.h>
#endif

namespace lockstep::data {

bool is_png(const std::string& path) {
  char head[8] = {};
  return base::RegularFile(path, "the image").read_at(0, head, 8) == 8 &&
         std::memcmp(head, "\x89PNG\r\n\x1a\n", 8) == 0;
}

#ifdef LOCKSTEP_PNG

namespace {

// ITU-R 601-2 luma in Pillow's fixed point (Convert.c, L24), so that the bytes are Image.convert("L")'s.
at::Tensor grey_of(const at::Tensor& rgb) {
  const auto shares = at::tensor({19595, 38470, 7471}, at::kInt);
  const auto sum = (rgb.to(at::kInt) * shares).sum(3, /*keepdim=*/false, at::kInt);
  return (sum + 0x8000).bitwise_right_shift(16).to(at::kByte).unsqueeze(1);
}

}  // namespace

at::Tensor read_png(const std::string& path, int64_t channels, int64_t most_pixels) {
  if (channels != 1 && channels != 3) {
    throw InputError(format("a PNG cannot be read into {} channels", channels), path,
                     "give the images as an IDX file");
  }
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  const auto check = [&](bool good) {
    if (good) return;
    const std::string message = image.message;
    png_image_free(&image);
    throw InputError("cannot read the PNG: " + message, path,
                     "save the image again as a PNG, or give the images as an IDX file");
  };
  check(png_image_begin_read_from_file(&image, path.c_str()));
  image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // 16 bits are the same grey as 8, only finer
  const bool colour = (image.format & PNG_FORMAT_FLAG_COLOR) != 0;
  const int64_t read = channels == 3 || colour ? 3 : 1;
  image.format = read == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  const int64_t height = image.height, width = image.width;
  if (height * width > most_pixels) {
    png_image_free(&image);
    throw InputError(format("the PNG is too large: {}x{}", width, height), path,
                     "scale it to the size of the training images");
  }
  auto pixels = at::empty({1, height, width, read}, at::kByte);
  const png_color black{0, 0, 0};
  check(png_image_finish_read(&image, &black, pixels.data_ptr(), 0, nullptr));
  if (read != channels) return grey_of(pixels);
  return pixels.permute({0, 3, 1, 2}).contiguous();
}

#else

at::Tensor read_png(const std::string& path, int64_t, int64_t) {
  throw InputError("this lockstep was built without libpng", path, "give the images as an IDX file");
}

#endif

}  // namespace lockstep::data
