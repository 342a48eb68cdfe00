#include "tools/report/image.h"

#include <cstdint>

namespace lockstep::report {
namespace {

constexpr int64_t kMostPixels = 512;  // along a side

int hex(char letter) {
  if (letter >= '0' && letter <= '9') return letter - '0';
  return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

std::string bytes_of(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    if (hex(text[i]) < 0 || hex(text[i + 1]) < 0) return "";
    bytes += static_cast<char>(hex(text[i]) * 16 + hex(text[i + 1]));
  }
  return bytes;
}

void put(std::string& file, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) file += static_cast<char>(value >> (8 * i) & 0xff);
}

// The simplest format that every browser draws: 24 bits, no compression, the lowest row first.
std::string bmp(const std::string& pixels, int64_t channels, int64_t height, int64_t width) {
  const int64_t line = (3 * width + 3) / 4 * 4;
  std::string file = "BM";
  put(file, static_cast<uint32_t>(54 + line * height), 4);
  put(file, 0, 4), put(file, 54, 4), put(file, 40, 4);
  put(file, static_cast<uint32_t>(width), 4), put(file, static_cast<uint32_t>(height), 4);
  put(file, 1, 2), put(file, 24, 2), put(file, 0, 4);
  put(file, static_cast<uint32_t>(line * height), 4);
  for (int i = 0; i < 4; ++i) put(file, 0, 4);
  for (int64_t y = height; y-- > 0;) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t colour = 3; colour-- > 0;)  // blue, green, red
        file += pixels[static_cast<size_t>(((channels == 3 ? colour : 0) * height + y) * width + x)];
    }
    file.append(static_cast<size_t>(line - 3 * width), '\0');
  }
  return file;
}

}  // namespace

std::string base64(const std::string& bytes) {
  static constexpr const char* kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j)
      group = group << 8 | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0);
    for (size_t j = 0; j < 4; ++j) text += i + j > bytes.size() ? '=' : kLetters[group >> (18 - 6 * j) & 63];
  }
  return text;
}

std::string image_uri(const nlohmann::json& sample) {
  const auto& shape = list(sample, "shape");
  if (shape.size() != 3) return "";
  int64_t size[3];
  for (size_t i = 0; i < 3; ++i) {
    if (!shape[i].is_number_integer()) return "";
    size[i] = shape[i].get<int64_t>();
    if (size[i] < 1 || size[i] > kMostPixels) return "";
  }
  const auto pixels = bytes_of(text(sample, "pixels"));
  if ((size[0] != 1 && size[0] != 3) || pixels.size() != static_cast<size_t>(size[0] * size[1] * size[2]))
    return "";
  return "data:image/bmp;base64," + base64(bmp(pixels, size[0], size[1], size[2]));
}

}  // namespace lockstep::report
