#include "lockstep/data/kept_set.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/data/packed.h"

namespace lockstep::data {
namespace {

// The file: this head, the table (packed numbers and texts), then the tensors, each at a multiple of kAlign.
struct Head {
  char magic[16];
  int64_t version;
  int64_t table_bytes;
  int64_t file_bytes;
  uint32_t table_sum;    // crc32
  uint32_t tensors_sum;  // of everything behind the table
};

constexpr char kMagic[16] = "lockstep tokens";
constexpr int64_t kVersion = 1;
constexpr int64_t kAlign = 64;

int64_t aligned(int64_t at) {
  return (at + kAlign - 1) / kAlign * kAlign;
}

uint32_t sum_of(const char* data, int64_t size, uint32_t sum = 0) {
  if (size == 0) return sum;  // zlib begins again where there is no data
  return static_cast<uint32_t>(
      ::crc32_z(sum, reinterpret_cast<const Bytef*>(data), static_cast<size_t>(size)));
}

std::string kept_table(const std::string& key, const std::string& state, const SharedSet& set) {
  Packer table;
  table.string(key).string(state).string(set.text).number(static_cast<int64_t>(set.tensors.size()));
  int64_t offset = 0;
  for (const auto& tensor : set.tensors) {
    table.number(offset).number(static_cast<int64_t>(tensor.scalar_type())).number(tensor.dim());
    for (const int64_t size : tensor.sizes()) table.number(size);
    offset = aligned(offset + static_cast<int64_t>(tensor.nbytes()));
  }
  return table.text();
}

/// A file of ours in memory; nothing of it is looked at before its sums are right.
struct Kept {
  std::shared_ptr<base::FileMap> mapping;
  Head head{};
  std::string key, state;
  SharedSet set;
};

std::shared_ptr<base::FileMap> mapped(const std::string& path, const OriginalFile& origin, Head& head) {
  const base::Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  struct stat facts {};
  if (!file || ::fstat(file.number(), &facts) != 0 || !S_ISREG(facts.st_mode) || !origin.is_trusted(facts) ||
      facts.st_size < static_cast<off_t>(sizeof head))
    return nullptr;
  auto mapping = std::make_shared<base::FileMap>(file.number(), 0, static_cast<size_t>(facts.st_size),
                                                 PROT_READ, MAP_SHARED, path);
  std::memcpy(&head, mapping->data(), sizeof head);
  const bool ours = std::memcmp(head.magic, kMagic, sizeof kMagic) == 0 && head.version == kVersion &&
                    head.file_bytes == facts.st_size && head.table_bytes >= 0 &&
                    head.table_bytes <= facts.st_size - static_cast<off_t>(sizeof head);
  return ours ? mapping : nullptr;
}

// The tensor that the table describes next, or nothing where that does not lie inside the file.
std::optional<at::Tensor> tensor_in(const Kept& kept, int64_t begin, Unpacker& table) {
  constexpr int64_t kMostDimensions = 8;
  const int64_t offset = table.number(), type = table.number(), dimensions = table.number();
  int64_t room = kept.head.file_bytes - begin - offset;
  if (type < 0 || type >= static_cast<int64_t>(at::ScalarType::NumOptions) || dimensions < 0 ||
      dimensions > kMostDimensions || offset < 0 || offset % kAlign != 0 || room < 0)
    return std::nullopt;
  const auto kind = static_cast<at::ScalarType>(type);
  if (kind != at::kInt && kind != at::kLong && kind != at::kFloat) return std::nullopt;
  room /= static_cast<int64_t>(c10::elementSize(kind));
  std::vector<int64_t> shape;
  for (int64_t i = 0; i < dimensions; ++i) {
    shape.push_back(table.number());
    if (shape.back() < 0 || shape.back() > room) return std::nullopt;
    room /= std::max<int64_t>(1, shape.back());
  }
  return view_of(kept.mapping, kept.mapping->data() + begin + offset, shape, kind);
}

bool read_table(Kept& kept) {
  const char* begin = kept.mapping->data() + sizeof(Head);
  Unpacker table(begin, kept.head.table_bytes);
  kept.key = table.string();
  kept.state = table.string();
  kept.set.text = table.string();
  const int64_t count = table.number();
  const int64_t tensors = aligned(static_cast<int64_t>(sizeof(Head)) + kept.head.table_bytes);
  for (int64_t i = 0; i < count && !table.failed(); ++i) {
    auto tensor = tensor_in(kept, tensors, table);
    if (!tensor) return false;
    kept.set.tensors.push_back(*std::move(tensor));
  }
  return !table.failed();
}

std::optional<Kept> read_kept(const std::string& path, const OriginalFile& origin, bool check_tensors) {
  Kept kept;
  kept.mapping = mapped(path, origin, kept.head);
  if (!kept.mapping) return std::nullopt;
  const char* table = kept.mapping->data() + sizeof(Head);
  if (sum_of(table, kept.head.table_bytes) != kept.head.table_sum) return std::nullopt;
  const int64_t before = static_cast<int64_t>(sizeof(Head)) + kept.head.table_bytes;
  if (check_tensors &&
      sum_of(kept.mapping->data() + before, kept.head.file_bytes - before) != kept.head.tensors_sum)
    return std::nullopt;
  if (!read_table(kept) || kept.mapping->was_cut()) return std::nullopt;
  return kept;
}

/// The bytes behind the table, in order.
template <class Each>
void for_each_piece(const SharedSet& set, int64_t before, const Each& each) {
  static constexpr char kNothing[kAlign] = {};
  each(kNothing, aligned(before) - before);
  for (const auto& tensor : set.tensors) {
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    each(static_cast<const char*>(tensor.const_data_ptr()), bytes);
    each(kNothing, aligned(bytes) - bytes);
  }
}

// A change within the clock's grain, or a server's, would leave the times as they are.
bool is_settled(const std::string& path) {
  constexpr time_t kGrain = 3;
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 && ::time(nullptr) - facts.st_ctim.tv_sec > kGrain;
}

struct stat looked_at(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0)
    throw InputError(format("cannot read the file of samples: {}", strerror(errno)), path, "see task.file");
  return facts;
}

std::string written(const struct stat& facts) {
  return format("{} {}.{} {}.{} {}", facts.st_size, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec,
                facts.st_ctim.tv_sec, facts.st_ctim.tv_nsec, facts.st_ino);
}

/// Under a name that no other process has, on no other node either; gone again unless it is kept.
class Partial {
 public:
  explicit Partial(const std::string& path) : final_(path), file_(base::make_partial(path, path_)) {
    if (!file_) fail();
  }
  ~Partial() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;

  void write(const void* data, int64_t size) {
    const std::string_view bytes(static_cast<const char*>(data), static_cast<size_t>(size));
    if (!base::write_all(file_.number(), bytes)) fail();
  }
  void keep(mode_t rights) {
    const bool stored = ::fchmod(file_.number(), rights) == 0 && ::fsync(file_.number()) == 0;
    if (!stored || ::rename(path_.c_str(), final_.c_str()) != 0) fail();
    path_.clear();
  }

 private:
  [[noreturn]] void fail() const { throw Error(strerror(errno), final_, ""); }

  std::string final_, path_;
  base::Descriptor file_;
};

}  // namespace

OriginalFile::OriginalFile(const std::string& path) : path_(path) {
  const auto facts = looked_at(path);
  facts_ = written(facts);
  owner_ = facts.st_uid;
}

bool OriginalFile::is_trusted(const struct stat& facts) const {
  const bool known = facts.st_uid == ::geteuid() || facts.st_uid == 0 || facts.st_uid == owner_;
  return known && (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

const std::string& OriginalFile::digest() const {
  if (digest_.empty()) digest_ = base::sha256_of_file(path_);
  return digest_;
}

std::string OriginalFile::state() const {
  const auto sum = digest();
  if (written(looked_at(path_)) != facts_) throw Error("the file was changed while it was read", path_, "");
  return base::pack_texts({is_settled(path_) ? facts_ : "", sum});
}

uint32_t OriginalFile::rights() const {
  struct stat facts {};
  return ::stat(path_.c_str(), &facts) == 0 ? (facts.st_mode & 0044) | 0600 : 0600;
}

bool OriginalFile::is(const std::string& state) const {
  std::vector<std::string> texts;
  try {
    texts = base::unpack_texts(state);
  } catch (const Error&) {
    return false;  // no state() of ours
  }
  return texts.size() == 2 && (texts[0] == facts_ || texts[1] == digest());
}

std::optional<SharedSet> find_kept(const std::string& path, const std::string& key,
                                   const OriginalFile& origin) {
  auto kept = read_kept(path, origin, /*check_tensors=*/true);
  if (!kept || kept->key != key || !origin.is(kept->state)) return std::nullopt;
  return std::move(kept->set);
}

SharedSet map_kept(const std::string& path, const OriginalFile& origin) {
  auto kept = read_kept(path, origin, /*check_tensors=*/false);
  if (!kept)
    throw Error("the kept tokens have gone, or others may write them", path,
                "set task.cache to a folder of your own that nothing tidies");
  return std::move(kept->set);
}

void keep_set(const std::string& path, const std::string& key, const OriginalFile& origin,
              const SharedSet& set) {
  const auto table = kept_table(key, origin.state(), set);
  const int64_t before = static_cast<int64_t>(sizeof(Head) + table.size());
  Head head{};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  head.version = kVersion;
  head.table_bytes = static_cast<int64_t>(table.size());
  head.file_bytes = before;
  head.table_sum = sum_of(table.data(), head.table_bytes);
  for_each_piece(set, before, [&](const char* data, int64_t size) {
    head.tensors_sum = sum_of(data, size, head.tensors_sum);
    head.file_bytes += size;
  });
  base::remove_dead_partials(path);
  Partial file(path);
  file.write(&head, sizeof head);
  file.write(table.data(), head.table_bytes);
  for_each_piece(set, before, [&](const char* data, int64_t size) { file.write(data, size); });
  file.keep(origin.rights());
}

}  // namespace lockstep::data
