#include "lockstep/data/pixels/image_file.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs it
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

#ifdef LOCKSTEP_PNG
#include <png.h>
#endif

#ifdef LOCKSTEP_JPEG
// in this order
#include <jpeglib.h>

#include <jerror.h>
#endif

namespace lockstep::data {
namespace {

// Pillow's limit: a small file may claim to be a huge image.
[[maybe_unused]] void check_pixels(int64_t width, int64_t height) {
  constexpr int64_t kMost = 178'956'970;
  if (width < 1 || height < 1) throw BadImage("the image has no pixels");
  if (width > kMost / height)
    throw BadImage(format("the image is too large: {}x{}, more than {} pixels", width, height, kMost));
}

#ifdef LOCKSTEP_JPEG

constexpr int kMostScans = 500;  // a small file with many scans of a large image would take hours

// Pillow's cmyk2rgb (Convert.c) of inverted bytes: Adobe writes them, and Pillow expects them in every file.
void rgb_of_inverted_cmyk(const uint8_t* from, int64_t pixels, uint8_t* to) {
  const auto scaled = [](int a, int b) {
    const int product = a * b + 128;
    return ((product >> 8) + product) >> 8;
  };
  for (int64_t i = 0; i < pixels; ++i, from += 4, to += 3) {
    const int light = from[3];
    for (int c = 0; c < 3; ++c) to[c] = static_cast<uint8_t>(light - scaled(255 - from[c], light));
  }
}

// Warnings after which the pixels are wrong.
bool loses_pixels(int code) {
  return code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
         code == JWRN_ARITH_BAD_CODE || code == JWRN_MUST_RESYNC;
}

/// libjpeg reports an error by a longjmp over C functions.
class JpegDecoder {
 public:
  explicit JpegDecoder(std::span<const uint8_t> bytes) {
    info_.err = jpeg_std_error(&errors_);
    info_.client_data = this;
    errors_.error_exit = [](j_common_ptr info) { std::longjmp(of(info).back_, 1); };
    errors_.emit_message = [](j_common_ptr info, int level) {
      if (level < 0 && loses_pixels(info->err->msg_code)) std::longjmp(of(info).back_, 1);
    };
    monitor_.progress_monitor = [](j_common_ptr info) {
      if (of(info).info_.input_scan_number > kMostScans) std::longjmp(of(info).back_, kTooManyScans);
    };
    run([&] {
      jpeg_create_decompress(&info_);
      info_.progress = &monitor_;
      jpeg_mem_src(&info_, bytes.data(), bytes.size());
      jpeg_read_header(&info_, TRUE);
    });
    if (info_.num_components == 2 || info_.num_components > 4)
      throw BadImage(format("the JPEG has {} colors", info_.num_components));
    check_pixels(info_.image_width, info_.image_height);
  }

  void read(Pixels& into) {
    into.resize(info_.image_height, info_.image_width);
    const bool cmyk = info_.num_components == 4;
    info_.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    std::vector<uint8_t> line(cmyk ? into.width * 4 : 0);
    run([&] {
      jpeg_start_decompress(&info_);
      while (info_.output_scanline < info_.output_height) {
        uint8_t* const row = into.row(info_.output_scanline);
        JSAMPROW place = cmyk ? line.data() : row;
        jpeg_read_scanlines(&info_, &place, 1);
        if (cmyk) rgb_of_inverted_cmyk(line.data(), into.width, row);
      }
      jpeg_finish_decompress(&info_);
    });
  }

 private:
  static constexpr int kTooManyScans = 2;

  struct Info : jpeg_decompress_struct {
    ~Info() { jpeg_destroy_decompress(this); }
  };

  static JpegDecoder& of(j_common_ptr info) { return *static_cast<JpegDecoder*>(info->client_data); }

  // Nothing in `calls` has a destructor.
  template <class Calls>
  void run(const Calls& calls) {
    switch (setjmp(back_)) {
      case 0:
        return calls();
      case kTooManyScans:
        throw BadImage(format("the JPEG has more than {} scans", kMostScans));
      default:
        throw BadImage(reason());
    }
  }

  std::string reason() {
    if (errors_.msg_code == JWRN_JPEG_EOF || errors_.msg_code == JERR_INPUT_EMPTY)
      return "the JPEG is cut off";
    char text[JMSG_LENGTH_MAX];
    errors_.format_message(reinterpret_cast<j_common_ptr>(&info_), text);
    return format("the JPEG is damaged: {}", text);
  }

  Info info_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr monitor_{};
  std::jmp_buf back_{};
};

#endif

#ifdef LOCKSTEP_PNG

/// libpng reports an error by a longjmp over C functions.
class PngDecoder {
 public:
  explicit PngDecoder(std::span<const uint8_t> bytes) : left_(bytes) {
    if (!png_) throw std::bad_alloc();
    run([&] {
      png_set_read_fn(png_.get(), this, [](png_structp png, png_bytep into, size_t size) {
        static_cast<PngDecoder*>(png_get_io_ptr(png))->take(into, size);
      });
      png_set_user_limits(png_.get(), PNG_UINT_31_MAX,
                          PNG_UINT_31_MAX);  // check_pixels() has the better message
      png_read_info(png_.get(), png_.info);
    });
    check_pixels(width(), height());
  }

  void read(Pixels& into, bool on_black) {
    into.resize(height(), width());
    std::vector<png_bytep> rows(static_cast<size_t>(into.height));
    for (int64_t y = 0; y < into.height; ++y) rows[static_cast<size_t>(y)] = into.row(y);
    run([&] {
      png_set_expand(png_.get());
      png_set_strip_16(png_.get());
      if (on_black) {
        const png_color_16 black{};
        png_set_background(png_.get(), &black, PNG_BACKGROUND_GAMMA_SCREEN, /*need_expand=*/0, 1.0);
      } else {
        png_set_strip_alpha(png_.get());
      }
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
    Png(Png&&) = delete;
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

#endif

using Bytes = std::span<const uint8_t>;

constexpr const char* kSaveAgain = "save the image again as PNG or JPEG, or remove it from the folder";
constexpr size_t kLargestFile = size_t{1} << 31;

/// The first and last bytes of a file, and its reader.
struct Kind {
  std::string_view begins, ends;
  void (*read)(Bytes, Pixels&);
};
using namespace std::string_view_literals;
constexpr auto kPngBegins = "\x89PNG\r\n\x1a\n"sv;
constexpr Kind kKinds[] = {
    {"\xFF\xD8\xFF"sv, "\xFF\xD9"sv, read_jpeg},
    {kPngBegins, "IEND\xAE\x42\x60\x82"sv, [](Bytes bytes, Pixels& into) { read_png(bytes, into); }},
};

/// Formats that cannot be read, for the error message.
constexpr std::pair<std::string_view, const char*> kOtherFormats[] = {
    {"GIF8"sv, "a GIF"},
    {"BM"sv, "a BMP"},
    {"RIFF"sv, "a WebP"},
    {"II*\0"sv, "a TIFF"},
    {"<"sv, "SVG, XML or HTML"},
    {"version https://git-lfs"sv, "a Git LFS pointer: get the image with `git lfs pull`"},
};

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

const Kind& kind_of(Bytes bytes) {
  const auto text = text_of(bytes);
  if (text.empty()) throw BadImage("the file is empty");
  for (const auto& kind : kKinds)
    if (text.starts_with(kind.begins)) return kind;
  for (const auto& [begins, name] : kOtherFormats) {
    if (text.starts_with(begins))
      throw BadImage(format("the file is neither a PNG nor a JPEG, but {}", name));
  }
  throw BadImage("the file is neither a PNG nor a JPEG");
}

Bytes all_of(base::RegularFile& file, std::vector<uint8_t>& into) {
  if (file.size() > kLargestFile) throw BadImage(format("the file has {} bytes", file.size()));
  if (into.size() < file.size()) into.resize(file.size());
  return {into.data(), file.read_at(0, into.data(), file.size())};
}

template <class Work>
void with_image(const std::string& path, const Work& work) {
  const auto place = [&] { return base::printable(path, 4096); };
  try {
    work();
  } catch (const NoDecoder& none) {
    throw InputError(
        format("this lockstep was built without {}", none.what()), place(),
        "install its headers and build again: docs/reference/dependencies.md names the packages");
  } catch (const BadImage& bad) {
    throw DamagedImage(bad.what(), place(), kSaveAgain);
  } catch (const InputError& unread) {
    throw DamagedImage(unread.what(), unread.where(), unread.hint());
  }
}

template <class Work>
void with_file(const std::string& path, const Work& work) {
  with_image(path, [&] {
    base::RegularFile file(path, "the image", kSaveAgain);
    work(file);
  });
}

}  // namespace

#ifdef LOCKSTEP_JPEG
void read_jpeg(Bytes bytes, Pixels& into) {
  JpegDecoder(bytes).read(into);
}
#else
void read_jpeg(Bytes, Pixels&) {
  throw NoDecoder("libjpeg");
}
#endif

#ifdef LOCKSTEP_PNG
void read_png(Bytes bytes, Pixels& into, bool on_black) {
  PngDecoder(bytes).read(into, on_black);
}
#else
void read_png(Bytes, Pixels&, bool) {
  throw NoDecoder("libpng");
}
#endif

bool is_png(const std::string& path) {
  char head[kPngBegins.size()] = {};
  return base::RegularFile(path, "the image").read_at(0, head, sizeof head) == sizeof head &&
         std::string_view(head, sizeof head) == kPngBegins;
}

const Pixels& ImageReader::read(const std::string& path) {
  with_file(path, [&](base::RegularFile& file) {
    const auto bytes = all_of(file, bytes_);
    kind_of(bytes).read(bytes, pixels_);
  });
  return pixels_;
}

const Pixels& ImageReader::read(Bytes bytes, const std::string& path) {
  with_image(path, [&] {
    if (bytes.size() > kLargestFile) throw BadImage(format("the file has {} bytes", bytes.size()));
    kind_of(bytes).read(bytes, pixels_);
  });
  return pixels_;
}

void ImageReader::check(Bytes bytes, const std::string& path) {
  with_image(path, [&] {
    if (!text_of(bytes).ends_with(kind_of(bytes).ends)) read(bytes, path);
  });
}

at::Tensor read_png(const std::string& path, int64_t channels) {
  if (channels != 1 && channels != 3)
    throw InputError(format("a PNG cannot be read into {} channels", channels), path,
                     "give the images as an IDX file");
  Pixels image;
  with_file(path, [&](base::RegularFile& file) {
    std::vector<uint8_t> bytes;
    read_png(all_of(file, bytes), image, /*on_black=*/true);
  });
  auto planes = at::empty({1, channels, image.height, image.width}, at::kByte);
  uint8_t* out = planes.mutable_data_ptr<uint8_t>();
  const int64_t pixels = image.height * image.width;
  const uint8_t* in = image.rgb.data();
  for (int64_t i = 0; i < pixels; ++i, in += 3) {
    if (channels == 1) {
      // Pillow's convert("L"), Convert.c: ITU-R 601-2 luma in fixed point
      out[i] = static_cast<uint8_t>((in[0] * 19595 + in[1] * 38470 + in[2] * 7471 + 0x8000) >> 16);
    } else {
      for (int64_t c = 0; c < 3; ++c) out[c * pixels + i] = in[c];
    }
  }
  return planes;
}

void ImageReader::check(const std::string& path) {
  with_file(path, [&](base::RegularFile& file) {
    std::array<uint8_t, 32> head{};
    std::array<uint8_t, 12> tail{};  // a PNG's last chunk
    const auto& kind = kind_of(Bytes(head.data(), file.read_at(0, head.data(), head.size())));
    const size_t length = std::min(tail.size(), file.size());
    const Bytes last(tail.data(), file.read_at(file.size() - length, tail.data(), length));
    if (text_of(last).ends_with(kind.ends)) return;
    kind.read(all_of(file, bytes_), pixels_);  // an image may have something behind its end
  });
}

}  // namespace lockstep::data
