#include "lockstep/data/pixels/image_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/data/pixels/jpeg.h"
#include "lockstep/data/pixels/png.h"

namespace lockstep::data {
namespace {

using Bytes = std::span<const uint8_t>;

constexpr const char* kMend = "save the image again as PNG or JPEG, or take it out of the folder";
constexpr size_t kLargestFile = size_t{1} << 31;
constexpr size_t kHead = size_t{64} << 10;  // what stands before the pixels is seldom longer
constexpr size_t kTail = 12;                // a PNG's last chunk

/// A kind of image: how its files begin and end, and who reads them.
struct Kind {
  std::string_view begins, ends;
  void (*read)(Bytes, Pixels&);
  void (*check_header)(Bytes);
};
using namespace std::string_view_literals;
constexpr Kind kKinds[] = {
    {"\xFF\xD8\xFF"sv, "\xFF\xD9"sv, read_jpeg, check_jpeg_header},
    {"\x89PNG\r\n\x1a\n"sv, "IEND\xAE\x42\x60\x82"sv, read_png, check_png_header},
};

/// Others, for the error's words.
struct Stranger {
  std::string_view begins;
  const char* name;
};
constexpr Stranger kStrangers[] = {
    {"GIF8"sv, "a GIF"},
    {"BM"sv, "a BMP"},
    {"RIFF"sv, "a WebP"},
    {"II*\0"sv, "a TIFF"},
    {"MM\0*"sv, "a TIFF"},
    {"<svg"sv, "an SVG"},
    {"<?xml"sv, "XML"},
    {"<!DOCTYPE"sv, "HTML"},
    {"<html"sv, "HTML"},
    {"%PDF"sv, "a PDF"},
    {"PK\3\4"sv, "an archive"},
    {"\0\5\x16\7"sv, "a note of macOS's"},
    {"version https://git-lfs"sv, "git's note of where the image is: get it with `git lfs pull`"},
};

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

const Kind& kind_of(Bytes bytes) {
  const auto text = text_of(bytes);
  if (text.empty()) throw BadImage("the file is empty");
  for (const auto& kind : kKinds) {
    if (text.starts_with(kind.begins)) return kind;
  }
  for (const auto& stranger : kStrangers) {
    if (text.starts_with(stranger.begins))
      throw BadImage(format("the file is neither a PNG nor a JPEG, but {}", stranger.name));
  }
  throw BadImage("the file is neither a PNG nor a JPEG");
}

Bytes all_of(base::RegularFile& file, std::vector<uint8_t>& into) {
  if (file.size() > kLargestFile) throw BadImage(format("the file has {} bytes", file.size()));
  if (into.size() < file.size()) into.resize(file.size());
  return {into.data(), file.read_at(0, into.data(), file.size())};
}

template <class Work>
void with_file(const std::string& path, const Work& work) {
  const auto place = [&] { return base::printable(path, 4096); };
  try {
    base::RegularFile file(path, "the image", kMend);
    work(file);
  } catch (const NoDecoder& none) {
    throw InputError(format("this lockstep was built without {}", none.what()), place(),
                     "install its headers and build again: docs/dependencies.md names the packages");
  } catch (const BadImage& bad) {
    throw DamagedImage(bad.what(), place(), kMend);
  } catch (const InputError& unread) {
    throw DamagedImage(unread.what(), unread.where(), unread.hint());
  }
}

// A header longer than the head shows only in the whole file.
bool is_header_good(const Kind& kind, Bytes head, bool whole) {
  try {
    kind.check_header(head);
    return true;
  } catch (const BadImage&) {
    if (whole) throw;
    return false;
  }
}

}  // namespace

void check_pixels(int64_t width, int64_t height) {
  if (width < 1 || height < 1) throw BadImage("the image has no pixels");
  if (width > kMostPixels / height)
    throw BadImage(format("the image is too large: {}x{}, more than {} pixels", width, height, kMostPixels));
}

const Pixels& ImageReader::read(const std::string& path) {
  with_file(path, [&](base::RegularFile& file) {
    const auto bytes = all_of(file, bytes_);
    kind_of(bytes).read(bytes, pixels_);
  });
  return pixels_;
}

void ImageReader::check(const std::string& path) {
  with_file(path, [&](base::RegularFile& file) {
    std::array<uint8_t, kHead> head;
    const Bytes first(head.data(), file.read_at(0, head.data(), std::min(kHead, file.size())));
    const auto& kind = kind_of(first);
    std::array<uint8_t, kTail> tail{};
    const size_t length = std::min(kTail, file.size());
    const Bytes last(tail.data(), file.read_at(file.size() - length, tail.data(), length));
    const bool good = is_header_good(kind, first, first.size() == file.size());
    // an image may have something behind its end: then only all of it tells
    if (good && text_of(last).ends_with(kind.ends)) return;
    const auto bytes = all_of(file, bytes_);
    kind.read(bytes, pixels_);
  });
}

}  // namespace lockstep::data
