#include "lockstep/base/files/sha256.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"

namespace lockstep::base {
namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
std::array<uint32_t, 64> make_constants() {
  std::array<uint32_t, 64> constants;
  size_t found = 0;
  for (uint32_t n = 2; found < 64; ++n) {
    bool prime = true;
    for (uint32_t d = 2; d * d <= n; ++d) prime = prime && n % d != 0;
    if (!prime) continue;
    const long double root = std::cbrt(static_cast<long double>(n));
    constants[found++] = static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0L);
  }
  return constants;
}

uint32_t word_at(const uint8_t* b) {
  return uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 | b[3];
}

}  // namespace

void Sha256::block(const uint8_t* bytes) {
  using std::rotr;
  static const auto k = make_constants();
  uint32_t w[64];
  for (int i = 0; i < 16; ++i) w[i] = word_at(bytes + 4 * i);
  for (int i = 16; i < 64; ++i) {
    const uint32_t s0 = rotr(w[i - 15], 7) ^ rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
    const uint32_t s1 = rotr(w[i - 2], 17) ^ rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (int i = 0; i < 64; ++i) {
    const uint32_t t1 = h + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & f) ^ (~e & g)) + k[i] + w[i];
    const uint32_t t2 = (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const uint32_t add[8] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i) state_[i] += add[i];
}

void Sha256::add(const void* data, size_t size) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  while (size > 0) {
    const size_t used = total_ % 64, taken = std::min(size, 64 - used);
    if (taken == 64) {
      block(bytes);
    } else {
      std::memcpy(buffer_.data() + used, bytes, taken);
      if (used + taken == 64) block(buffer_.data());
    }
    total_ += taken, bytes += taken, size -= taken;
  }
}

std::string Sha256::hex() {
  const uint64_t bits = total_ * 8;
  add("\x80", 1);
  while (total_ % 64 != 56) add("", 1);
  uint8_t length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<uint8_t>(bits >> (56 - 8 * i));
  add(length, 8);
  std::string text;
  for (uint32_t word : state_) text += format("{:08x}", word);
  return text;
}

std::string sha256_of_file(const std::string& path) {
  RegularFile file(path, "the file");
  std::vector<char> chunk(1 << 20);
  Sha256 sum;
  while (const size_t got = file.read(chunk.data(), chunk.size())) sum.add(chunk.data(), got);
  return sum.hex();
}

}  // namespace lockstep::base
