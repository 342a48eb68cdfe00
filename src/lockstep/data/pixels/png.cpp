#include "lockstep/data/pixels/png.h"

#include <ATen/ATen.h>

#include <csetjmp>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
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

namespace {

/// libpng reports an error by a jump: what it jumps over are calls in C.
class PngDecoder {
 public:
  explicit PngDecoder(std::span<const uint8_t> bytes) : left_(bytes) {
    if (!png_) throw std::bad_alloc();
    run([&] {
      png_set_read_fn(png_.get(), this, [](png_structp png, png_bytep into, size_t size) {
        static_cast<PngDecoder*>(png_get_io_ptr(png))->take(into, size);
      });
      png_set_user_limits(png_.get(), PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_pixels() says it better
      png_read_info(png_.get(), png_.info);
    });
    check_pixels(width(), height());
  }

  void read(Pixels& into) {
    into.resize(height(), width());
    std::vector<png_bytep> rows(static_cast<size_t>(into.height));
    for (int64_t y = 0; y < into.height; ++y) rows[static_cast<size_t>(y)] = into.row(y);
    run([&] {
      png_set_expand(png_.get());
      png_set_strip_16(png_.get());
      png_set_strip_alpha(png_.get());
      png_set_gray_to_rgb(png_.get());
      png_read_image(png_.get(), rows.data());
    });
  }

 private:
  struct Png {
    png_structp png;
    png_infop info;
    explicit Png(PngDecoder* decoder)
        : png(png_create_read_struct(
              PNG_LIBPNG_VER_STRING, decoder,
              [](png_structp png, png_const_charp text) {
                static_cast<PngDecoder*>(png_get_error_ptr(png))->note(text);
                png_longjmp(png, 1);
              },
              [](png_structp, png_const_charp) {})),
          info(png ? png_create_info_struct(png) : nullptr) {}
    ~Png() { png_destroy_read_struct(&png, &info, nullptr); }
    Png(const Png&) = delete;
    Png& operator=(const Png&) = delete;
    png_structp get() const { return png; }
    explicit operator bool() const { return info != nullptr; }
  };

  int64_t width() const { return png_get_image_width(png_.get(), png_.info); }
  int64_t height() const { return png_get_image_height(png_.get(), png_.info); }

  void take(uint8_t* into, size_t size) {
    if (size > left_.size()) ended_ = true, png_error(png_.get(), "");
    std::memcpy(into, left_.data(), size);
    left_ = left_.subspan(size);
  }
  void note(const char* text) { std::strncpy(text_, text, sizeof text_ - 1); }

  // Nothing in `calls` has a destructor.
  template <class Calls>
  void run(const Calls& calls) {
    if (setjmp(png_jmpbuf(png_.get())) == 0) return calls();
    throw BadImage(ended_ ? "the PNG is cut off" : format("the PNG is damaged: {}", text_));
  }

  std::span<const uint8_t> left_;
  bool ended_ = false;
  char text_[100] = {};
  Png png_{this};
};

}  // namespace

void read_png(std::span<const uint8_t> bytes, Pixels& into) {
  PngDecoder(bytes).read(into);
}

void check_png_header(std::span<const uint8_t> bytes) {
  PngDecoder{bytes};
}

#else

void read_png(std::span<const uint8_t>, Pixels&) {
  throw NoDecoder("libpng");
}

void check_png_header(std::span<const uint8_t>) {
  throw NoDecoder("libpng");
}

at::Tensor read_png(const std::string& path, int64_t, int64_t) {
  throw InputError("this lockstep was built without libpng", path, "give the images as an IDX file");
}

#endif

}  // namespace lockstep::data
