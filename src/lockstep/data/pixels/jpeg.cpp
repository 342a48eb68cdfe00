#include "lockstep/data/pixels/jpeg.h"

#include "lockstep/base/format.h"

#ifdef LOCKSTEP_JPEG

#include <csetjmp>
#include <cstdio>  // jpeglib.h needs it

// in this order
#include <jpeglib.h>

#include <jerror.h>

namespace lockstep::data {
namespace {

constexpr int kMostScans = 500;  // a small file with many scans of a large image would take hours

// Pillow's cmyk2rgb (Convert.c), of inverted bytes: so Adobe writes them, and Pillow takes all to be.
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

// Warnings after which pixels are not the image's.
bool loses_pixels(int code) {
  return code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
         code == JWRN_ARITH_BAD_CODE || code == JWRN_MUST_RESYNC;
}

/// libjpeg reports an error by a jump: what it jumps over are calls in C.
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
      throw BadImage(format("the JPEG has {} colours", info_.num_components));
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

}  // namespace

void read_jpeg(std::span<const uint8_t> bytes, Pixels& into) {
  JpegDecoder(bytes).read(into);
}

void check_jpeg_header(std::span<const uint8_t> bytes) {
  JpegDecoder{bytes};
}

}  // namespace lockstep::data

#else

namespace lockstep::data {

void read_jpeg(std::span<const uint8_t>, Pixels&) {
  throw NoDecoder("libjpeg");
}

void check_jpeg_header(std::span<const uint8_t>) {
  throw NoDecoder("libjpeg");
}

}  // namespace lockstep::data

#endif
