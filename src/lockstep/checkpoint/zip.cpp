#include "lockstep/checkpoint/zip.h"

#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <new>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/checkpoint/file.h"

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

// APPNOTE.TXT 6.3: 4.3.7 local header, 4.3.12 central directory, 4.3.14-16 its end, 4.5.3 zip64 sizes.

namespace {

constexpr uint32_t kLocalHeader = 0x04034b50, kDirectoryEntry = 0x02014b50, kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50, kEnd64Locator = 0x07064b50;
constexpr size_t kEndSize = 22, kLocatorSize = 20, kLongestComment = 0xffff;
constexpr const char* kDamaged = "the file is damaged: its zip directory is cut off or wrong";

[[noreturn]] void damaged(const std::string& path) {
  throw InputError(kDamaged, path, "it may have been written or copied only in part");
}

struct Directory {
  uint64_t count, size, offset;
};

struct Entry {
  std::string name;
  uint16_t flags, method;
  uint32_t crc32;
  uint64_t packed, size, offset;
};

/// The last place where an end record would fill the file exactly.
size_t find_end(std::span<const uint8_t> file, const std::string& path) {
  if (file.size() < kEndSize) damaged(path);
  const auto last = file.size() - kEndSize;
  const auto first = last > kLongestComment ? last - kLongestComment : 0;
  for (auto at = last + 1; at-- > first;) {
    Cursor end(file.subspan(at), path);
    if (end.number<uint32_t>() != kEnd) continue;
    end.skip(16);
    if (end.number<uint16_t>() == file.size() - at - kEndSize) return at;
  }
  damaged(path);
}

Directory read_end64(std::span<const uint8_t> file, size_t end, const std::string& path) {
  if (end < kLocatorSize) damaged(path);
  Cursor locator(file.subspan(end - kLocatorSize), path);
  if (locator.number<uint32_t>() != kEnd64Locator) damaged(path);
  locator.skip(4);
  const auto at = locator.number<uint64_t>();
  if (at > end) damaged(path);
  Cursor record(file.subspan(at), path);
  if (record.number<uint32_t>() != kEnd64) damaged(path);
  record.skip(28);
  const auto count = record.number<uint64_t>();
  const auto size = record.number<uint64_t>();
  return {count, size, record.number<uint64_t>()};
}

Directory read_end(std::span<const uint8_t> file, size_t at, const std::string& path) {
  Cursor end(file.subspan(at), path);
  end.skip(10);
  const auto count = end.number<uint16_t>();
  const auto size = end.number<uint32_t>();
  const auto offset = end.number<uint32_t>();
  const auto needs64 = count == 0xffff || size == 0xffffffff || offset == 0xffffffff;
  return needs64 ? read_end64(file, at, path) : Directory{count, size, offset};
}

/// Sizes that did not fit their four bytes stand in the extra field, in this order.
void read_zip64(Cursor extra, Entry& entry) {
  while (extra.left() >= 4) {
    const auto id = extra.number<uint16_t>();
    Cursor field(extra.take(extra.number<uint16_t>()), extra.file());
    if (id != 1) continue;
    for (auto* value : {&entry.size, &entry.packed, &entry.offset}) {
      if (*value == 0xffffffff) *value = field.number<uint64_t>();
    }
  }
}

Entry read_entry(Cursor& directory) {
  if (directory.number<uint32_t>() != kDirectoryEntry) damaged(directory.file());
  Entry entry;
  directory.skip(4);
  entry.flags = directory.number<uint16_t>();
  entry.method = directory.number<uint16_t>();
  directory.skip(4);
  entry.crc32 = directory.number<uint32_t>();
  entry.packed = directory.number<uint32_t>();
  entry.size = directory.number<uint32_t>();
  const auto name = directory.number<uint16_t>();
  const auto extra = directory.number<uint16_t>();
  const auto comment = directory.number<uint16_t>();
  directory.skip(8);
  entry.offset = directory.number<uint32_t>();
  entry.name = directory.text(name);
  read_zip64(Cursor(directory.take(extra), directory.file()), entry);
  directory.skip(comment);
  return entry;
}

ZipRecord locate(std::span<const uint8_t> file, const Entry& entry, const std::string& path) {
  if (entry.flags & 1)
    throw InputError(format("{} is encrypted", entry.name), path,
                     "unpack the archive with its password and zip it again with `zip -0`");
  const auto compressed = entry.method != 0;
  if (entry.offset > file.size() || (!compressed && entry.packed != entry.size)) damaged(path);
  Cursor local(file.subspan(entry.offset), path);
  if (local.number<uint32_t>() != kLocalHeader) damaged(path);
  local.skip(22);
  const auto name = local.number<uint16_t>();
  const auto extra = local.number<uint16_t>();
  if (local.text(name) != entry.name) damaged(path);
  local.skip(extra);
  return {entry.name, entry.crc32, local.take(entry.packed), compressed};
}

/// Overlapping records would let a small file hold a large one many times.
void check_apart(std::vector<std::span<const uint8_t>> all, const std::string& path) {
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.data() < b.data(); });
  for (size_t i = 1; i < all.size(); ++i) {
    if (all[i - 1].data() + all[i - 1].size() > all[i].data()) damaged(path);
  }
}

}  // namespace

bool is_zip(std::span<const uint8_t> file) {
  constexpr std::string_view magic = "PK\3\4";
  return file.size() >= magic.size() && std::equal(magic.begin(), magic.end(), file.begin());
}

ZipArchive read_zip(std::span<const uint8_t> file, const std::string& path) {
  const auto end = find_end(file, path);
  const auto where = read_end(file, end, path);
  if (where.offset > end || where.size > end - where.offset) damaged(path);
  Cursor directory(file.subspan(where.offset, where.size), path);
  ZipArchive archive;
  std::unordered_set<std::string> names;
  for (uint64_t i = 0; i < where.count; ++i) {
    archive.records.push_back(locate(file, read_entry(directory), path));
    if (!names.insert(archive.records.back().name).second) damaged(path);
  }
  if (directory.left() != 0) damaged(path);
  std::vector<std::span<const uint8_t>> data;
  for (const auto& record : archive.records) data.push_back(record.data);
  check_apart(std::move(data), path);
  const auto comment = file.subspan(end + kEndSize);
  archive.comment.assign(comment.begin(), comment.end());
  return archive;
}

}  // namespace lockstep::checkpoint
