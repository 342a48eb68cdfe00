#include "lockstep/checkpoint/zip.h"

#include <caffe2/serialize/inline_container.h>
#include <zlib.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <limits>
#include <new>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::checkpoint {

// APPNOTE.TXT 6.3: 4.3.7 local header, 4.3.12 central directory, 4.3.14-16 its end, 4.5.3 zip64 sizes.

namespace {

constexpr uint32_t kLocalHeader = 0x04034b50, kDirectoryEntry = 0x02014b50, kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50, kEnd64Locator = 0x07064b50;
constexpr size_t kEndSize = 22, kLocatorSize = 20, kLongestComment = 0xffff;

/// Reads the directory of one file.
class DirectoryReader {
 public:
  DirectoryReader(const NamedBytes& file, const char* again)
      : bytes_(file.bytes), name_(file.name), again_(again) {}

  /// In the order of the directory, their names whole.
  std::vector<ZipRecord> read(std::string& comment) {
    const auto end = find_end();
    const auto where = read_end(end);
    if (where.offset > end || where.size > end - where.offset) damaged();
    Cursor directory(bytes_.subspan(where.offset, where.size), name_);
    std::vector<ZipRecord> records;
    for (uint64_t i = 0; i < where.count; ++i) records.push_back(locate(read_entry(directory)));
    if (directory.left() != 0) damaged();
    check_apart(records);
    const auto rest = bytes_.subspan(end + kEndSize);
    comment.assign(rest.begin(), rest.end());
    return records;
  }

  [[noreturn]] void damaged() const {
    throw InputError("the file is damaged: its zip directory is cut off or wrong", name_, again_);
  }

 private:
  struct Directory {
    uint64_t count, size, offset;
  };

  struct Entry {
    std::string name;
    uint16_t flags, method;
    uint32_t crc32;
    uint64_t packed, size, offset;
  };

  Cursor cursor_at(uint64_t offset) const { return {bytes_.subspan(offset), name_}; }

  /// The last place where an end record would fill the file exactly.
  size_t find_end() const {
    if (bytes_.size() < kEndSize) damaged();
    const auto last = bytes_.size() - kEndSize;
    const auto first = last > kLongestComment ? last - kLongestComment : 0;
    for (auto at = last + 1; at-- > first;) {
      auto end = cursor_at(at);
      if (end.number<uint32_t>() != kEnd) continue;
      end.skip(16);
      if (end.number<uint16_t>() == last - at) return at;
    }
    damaged();
  }

  Directory read_end(size_t end) const {
    auto short_record = cursor_at(end);
    short_record.skip(10);
    const auto short_count = short_record.number<uint16_t>();
    const auto short_size = short_record.number<uint32_t>();
    const auto short_offset = short_record.number<uint32_t>();
    const bool fits = short_count != 0xffff && short_size != 0xffffffff && short_offset != 0xffffffff;
    auto locator = cursor_at(end < kLocatorSize ? 0 : end - kLocatorSize);
    // without a locator, the numbers mean themselves: Python's zipfile writes 0xffff records like this
    if (fits || locator.number<uint32_t>() != kEnd64Locator) return {short_count, short_size, short_offset};
    locator.skip(4);
    const auto at = locator.number<uint64_t>();
    if (at > end) damaged();
    auto record = cursor_at(at);
    if (record.number<uint32_t>() != kEnd64) damaged();
    record.skip(28);
    const auto count = record.number<uint64_t>();
    const auto size = record.number<uint64_t>();
    return {count, size, record.number<uint64_t>()};
  }

  /// The extra field holds the sizes that do not fit four bytes, in this order.
  static void read_zip64(Cursor extra, Entry& entry) {
    while (extra.left() >= 4) {
      const auto id = extra.number<uint16_t>();
      Cursor field(extra.take(extra.number<uint16_t>()), extra.file());
      if (id != 1) continue;
      for (auto* value : {&entry.size, &entry.packed, &entry.offset})
        if (*value == 0xffffffff) *value = field.number<uint64_t>();
    }
  }

  Entry read_entry(Cursor& directory) const {
    if (directory.number<uint32_t>() != kDirectoryEntry) damaged();
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
    read_zip64(Cursor(directory.take(extra), name_), entry);
    directory.skip(comment);
    return entry;
  }

  ZipRecord locate(const Entry& entry) const {
    constexpr uint16_t kDeflated = 8;
    const auto compressed = entry.method != 0;
    if (entry.flags & 1 || (compressed && entry.method != kDeflated))
      throw InputError(format("{} is {}", base::printable(entry.name),
                              entry.flags & 1 ? "encrypted" : "not compressed with deflate"),
                       name_, "unpack the archive and zip it again with `zip -0 -r`");
    if (entry.offset > bytes_.size() || (!compressed && entry.packed != entry.size)) damaged();
    auto local = cursor_at(entry.offset);
    if (local.number<uint32_t>() != kLocalHeader) damaged();
    local.skip(22);
    const auto name = local.number<uint16_t>();
    const auto extra = local.number<uint16_t>();
    if (local.text(name) != entry.name) damaged();
    local.skip(extra);
    return {entry.name, entry.crc32, local.take(entry.packed), entry.size, compressed};
  }

  /// Overlapping records would let a small file hold a large one many times.
  void check_apart(const std::vector<ZipRecord>& records) const {
    std::vector<std::span<const uint8_t>> all;
    for (const auto& record : records) all.push_back(record.data);
    std::ranges::sort(all, {}, [](const auto& data) { return data.data(); });
    for (size_t i = 1; i < all.size(); ++i)
      if (all[i - 1].data() + all[i - 1].size() > all[i].data()) damaged();
  }

  std::span<const uint8_t> bytes_;
  const std::string& name_;
  const char* again_;
};

constexpr size_t kPart = size_t{1} << 20;
constexpr const char* kFetchAgain = "fetch or copy the archive again";

/// Decompresses into the sink. False if the data is damaged or ends early.
bool inflate(std::span<const uint8_t> packed, const base::ByteSink& sink) {
  z_stream stream{};
  if (::inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, ::inflateEnd);
  std::vector<uint8_t> part(kPart);
  int result = Z_OK;
  while (result == Z_OK) {
    if (stream.avail_in == 0) {
      const auto next = std::min<size_t>(packed.size(), std::numeric_limits<uInt>::max());
      stream.next_in = const_cast<Bytef*>(packed.data());  // zlib's header is older than const
      stream.avail_in = static_cast<uInt>(next);
      packed = packed.subspan(next);
    }
    stream.next_out = part.data();
    stream.avail_out = static_cast<uInt>(part.size());
    result = ::inflate(&stream, Z_NO_FLUSH);
    sink(part.data(), part.size() - stream.avail_out);
  }
  return result == Z_STREAM_END;
}

}  // namespace

uint32_t crc32_of(std::span<const uint8_t> bytes, uint32_t so_far) {
  if (bytes.empty()) return so_far;  // zlib takes a null pointer for "begin again"
  return static_cast<uint32_t>(::crc32_z(so_far, bytes.data(), bytes.size()));
}

bool is_zip(std::span<const uint8_t> file) {
  constexpr std::string_view magic = "PK\3\4";
  return file.size() >= magic.size() && std::equal(magic.begin(), magic.end(), file.begin());
}

ZipArchive::ZipArchive(NamedBytes file, const char* again) : file_(std::move(file)), again_(again) {
  DirectoryReader reader(file_, again);
  records_ = reader.read(comment_);
  if (!records_.empty()) folder_ = records_[0].name.substr(0, records_[0].name.find('/') + 1);
  const bool all = std::ranges::all_of(records_, [&](auto& one) { return one.name.starts_with(folder_); });
  if (!all) folder_.clear();
  for (size_t i = 0; i < records_.size(); ++i) {
    records_[i].name.erase(0, folder_.size());
    if (!by_name_.emplace(records_[i].name, i).second) reader.damaged();
  }
}

const ZipRecord& ZipArchive::find(const std::string& name) const {
  if (const auto found = by_name_.find(name); found != by_name_.end()) return records_[found->second];
  throw InputError(format("the archive holds no {}", base::printable(name)), file_.name, again_);
}

const ZipRecord& ZipArchive::member(const std::string& name) const {
  return find(name.starts_with(folder_) ? name.substr(folder_.size()) : name);
}

std::span<const uint8_t> ZipArchive::bytes(const std::string& name, bool verify) const {
  const auto& record = find(name);
  if (record.compressed)
    throw InputError(format("{} is compressed in the archive", base::printable(name)), file_.name,
                     "unpack the archive and zip it again with `zip -0 -r`");
  if (verify && crc32_of(record.data) != record.crc32)
    throw InputError(format("{} is damaged in the archive", base::printable(name)), file_.name, again_);
  return record.data;
}

void ZipArchive::unpack(const ZipRecord& record, const base::ByteSink& sink) const {
  constexpr uint64_t kBestRatio = 1032;  // of deflate: https://zlib.net/zlib_tech.html
  uint32_t sum = 0;
  uint64_t size = 0;
  const auto damaged = [&] {
    throw InputError(format("{} is damaged in the archive", base::printable(record.name)), file_.name,
                     again_);
  };
  const base::ByteSink checked = [&](const void* data, size_t more) {
    if ((size += more) > record.size) damaged();
    sum = crc32_of({static_cast<const uint8_t*>(data), more}, sum);
    sink(data, more);
  };
  if (record.size / kBestRatio > record.data.size()) damaged();
  bool whole = true;
  if (record.compressed) {
    whole = inflate(record.data, checked);
  } else {
    checked(record.data.data(), record.data.size());
  }
  if (!whole || size != record.size || sum != record.crc32) damaged();
}

std::string ZipArchive::text(const std::string& name) const {
  const auto found = bytes(name);
  return {found.begin(), found.end()};
}

bool is_unpacked(const std::string& archive, const std::string& member, const std::string& path) {
  const MappedFile mapped(archive, "the archive", kFetchAgain);
  const ZipArchive zip(mapped.named(), kFetchAgain);
  const auto& record = zip.member(member);
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return false;
  base::RegularFile file(path, "the unpacked file");
  std::vector<uint8_t> part(kPart);
  uint32_t sum = 0;
  while (const size_t got = file.read(part.data(), part.size())) sum = crc32_of({part.data(), got}, sum);
  return sum == record.crc32;
}

void unpack(const std::string& archive, const std::string& member, const std::string& path) {
  const MappedFile mapped(archive, "the archive", kFetchAgain);
  const ZipArchive zip(mapped.named(), kFetchAgain);
  const auto& record = zip.member(member);
  base::remove_stale_partials(path);
  base::write_whole(path, [&](const base::ByteSink& sink) { zip.unpack(record, sink); });
}

void write_archive(const base::ByteSink& sink,
                   const std::function<void(caffe2::serialize::PyTorchStreamWriter&,
                                            const std::exception_ptr& failure)>& records) {
  std::exception_ptr failure;
  // The writer must never see a failure: its destructor would write on, fail again and end the program.
  const auto guarded = [&](const void* data, size_t size) {
    try {
      if (!failure) sink(data, size);
    } catch (...) {
      failure = std::current_exception();
    }
    return size;
  };
  {
    caffe2::serialize::PyTorchStreamWriter writer(guarded);
    records(writer, failure);
    writer.writeEndOfFile();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lockstep::checkpoint
