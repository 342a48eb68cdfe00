#include "lockstep/checkpoint/seal.h"

#include <zlib.h>

#include <string>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::checkpoint {

namespace {

constexpr size_t kEndRecord = 22;  // APPNOTE.TXT 4.3.16, without a comment
constexpr std::string_view kTag = "lockstep crc32 ";
constexpr size_t kDigits = 8;
constexpr size_t kComment = kTag.size() + kDigits;

std::string hex(uint32_t crc32) {
  return format("{:08x}", crc32);
}

/// How a sealed safetensors file begins, after the header's length.
std::string sealed_beginning() {
  return format(R"({{"__metadata__":{{"{}":")", kSafetensorsSeal);
}

constexpr size_t kHeaderLength = 8;

}  // namespace

uint32_t crc32_of(std::span<const uint8_t> bytes, uint32_t so_far) {
  if (bytes.empty()) return so_far;  // zlib takes a null pointer for "begin again"
  return static_cast<uint32_t>(::crc32_z(so_far, bytes.data(), bytes.size()));
}

void SealingSink::pass_on(const void* data, size_t size) {
  crc_ = crc32_of({static_cast<const uint8_t*>(data), size}, crc_);
  sink_(data, size);
}

void SealingSink::write(const void* data, size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  if (size >= kEndRecord) {
    pass_on(held_.data(), held_.size());
    pass_on(bytes, size - kEndRecord);
    held_.assign(bytes + size - kEndRecord, kEndRecord);
    return;
  }
  held_.append(bytes, size);
  if (held_.size() > kEndRecord) {
    pass_on(held_.data(), held_.size() - kEndRecord);
    held_.erase(0, held_.size() - kEndRecord);
  }
}

void SealingSink::finish() {
  if (held_.size() != kEndRecord || held_.substr(0, 4) != "PK\5\6" ||
      held_.substr(20) != std::string(2, '\0')) {
    throw Error("the archive did not end as a zip archive does");
  }
  held_[20] = static_cast<char>(kComment);
  pass_on(held_.data(), held_.size());
  const auto comment = kTag.data() + hex(crc_);
  sink_(comment.data(), comment.size());
}

Seal check_seal(std::span<const uint8_t> file) {
  if (file.size() < kEndRecord + kComment) return Seal::missing;
  const auto end = file.last(kComment);
  const std::string_view comment(reinterpret_cast<const char*>(end.data()), end.size());
  if (!comment.starts_with(kTag)) return Seal::missing;
  const auto expected = hex(crc32_of(file.first(file.size() - kComment)));
  return comment.substr(kTag.size()) == expected ? Seal::whole : Seal::broken;
}

void seal_safetensors(std::string& beginning, uint32_t crc32) {
  beginning.replace(kHeaderLength + sealed_beginning().size(), kDigits, hex(crc32));
}

Seal check_safetensors_seal(std::span<const uint8_t> file) {
  const auto beginning = sealed_beginning();
  const size_t digits = kHeaderLength + beginning.size();
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.size() < digits + kDigits || text.substr(kHeaderLength, beginning.size()) != beginning)
    return Seal::missing;
  auto crc = crc32_of(file.first(digits));
  crc = crc32_of({reinterpret_cast<const uint8_t*>(kUnsealed), kDigits}, crc);
  crc = crc32_of(file.subspan(digits + kDigits), crc);
  return text.substr(digits, kDigits) == hex(crc) ? Seal::whole : Seal::broken;
}

}  // namespace lockstep::checkpoint
