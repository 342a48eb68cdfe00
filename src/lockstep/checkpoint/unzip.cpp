#include "lockstep/checkpoint/unzip.h"

#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <new>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/zip.h"

namespace lockstep::checkpoint {
namespace {

constexpr size_t kPart = size_t{1} << 20;
constexpr const char* kAgain = "fetch or copy the archive again";

constexpr FileWords kArchive = {"the archive", "the archive is empty", kAgain, kAgain};

ZipRecord find_member(const MappedFile& archive, const std::string& member) {
  const auto all = read_zip(archive.bytes(), archive.path());
  const auto found = std::find_if(all.records.begin(), all.records.end(),
                                  [&](const ZipRecord& record) { return record.name == member; });
  if (found != all.records.end()) return *found;
  throw InputError(format("the archive holds no {}", member), archive.path(), kAgain);
}

class Inflation {
 public:
  Inflation() {
    if (::inflateInit2(&stream_, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  ~Inflation() { ::inflateEnd(&stream_); }
  Inflation(const Inflation&) = delete;
  Inflation& operator=(const Inflation&) = delete;

  /// False where the data is damaged or ends early.
  bool run(std::span<const uint8_t> packed, const base::ByteSink& sink) {
    std::vector<uint8_t> part(kPart);
    for (int result = Z_OK; result != Z_STREAM_END;) {
      if (stream_.avail_in == 0) {
        const size_t next = std::min<size_t>(packed.size(), std::numeric_limits<uInt>::max());
        stream_.next_in = const_cast<Bytef*>(packed.data());  // zlib's header is older than const
        stream_.avail_in = static_cast<uInt>(next);
        packed = packed.subspan(next);
      }
      stream_.next_out = part.data();
      stream_.avail_out = static_cast<uInt>(part.size());
      result = ::inflate(&stream_, Z_NO_FLUSH);
      if (result != Z_OK && result != Z_STREAM_END) return false;
      sink(part.data(), part.size() - stream_.avail_out);
    }
    return true;
  }

 private:
  z_stream stream_{};
};

void write(const ZipRecord& record, const std::string& archive, const base::ByteSink& sink) {
  uLong sum = 0;
  const base::ByteSink summed = [&](const void* data, size_t size) {
    sum = ::crc32_z(sum, static_cast<const Bytef*>(data), size);
    sink(data, size);
  };
  bool whole = true;
  if (record.compressed)
    whole = Inflation().run(record.data, summed);
  else
    summed(record.data.data(), record.data.size());
  if (!whole || sum != record.crc32)
    throw InputError(format("{} is damaged in the archive", record.name), archive, kAgain);
}

}  // namespace

bool is_unpacked(const std::string& archive, const std::string& member, const std::string& path) {
  const MappedFile mapped(archive, kArchive);
  const auto record = find_member(mapped, member);
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return false;
  base::RegularFile file(path, "the unpacked file");
  std::vector<uint8_t> part(kPart);
  uLong sum = 0;
  while (const size_t got = file.read(part.data(), part.size())) sum = ::crc32_z(sum, part.data(), got);
  return sum == record.crc32;
}

void unpack(const std::string& archive, const std::string& member, const std::string& path) {
  const MappedFile mapped(archive, kArchive);
  const auto record = find_member(mapped, member);
  base::remove_dead_partials(path);
  base::write_whole(path, [&](const base::ByteSink& sink) { write(record, archive, sink); });
}

}  // namespace lockstep::checkpoint
