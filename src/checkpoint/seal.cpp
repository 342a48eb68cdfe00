#include "checkpoint/seal.h"

#include <zlib.h>

#include <string>
#include <string_view>

#include "base/error.h"
#include "base/format.h"

namespace lockstep {

namespace {

constexpr size_t kEndRecord = 22;  // APPNOTE.TXT 4.3.16, without a comment
constexpr std::string_view kTag = "lockstep crc32 ";
constexpr size_t kComment = kTag.size() + 8;

}  // namespace

uint32_t crc32_of(std::span<const uint8_t> bytes, uint32_t so_far) {
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
  const auto comment = format("{}{:08x}", kTag, crc_);
  sink_(comment.data(), comment.size());
}

Seal check_seal(std::span<const uint8_t> file) {
  if (file.size() < kEndRecord + kComment) return Seal::missing;
  const auto end = file.last(kComment);
  const std::string_view comment(reinterpret_cast<const char*>(end.data()), end.size());
  if (!comment.starts_with(kTag)) return Seal::missing;
  const auto expected = format("{:08x}", crc32_of(file.first(file.size() - kComment)));
  return comment.substr(kTag.size()) == expected ? Seal::whole : Seal::broken;
}

}  // namespace lockstep
