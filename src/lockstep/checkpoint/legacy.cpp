// torch/serialization.py: _legacy_save.

#include "lockstep/checkpoint/legacy.h"

#include <torch/types.h>

#include <algorithm>
#include <unordered_map>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/checkpoint/unpickle.h"

namespace lockstep::checkpoint {

namespace {

// The pickled magic number 0x1950a86a20f9469cfc6c.
constexpr std::array<uint8_t, 15> kMagic = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46,
                                            0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};

struct LegacyStorage {
  at::Tensor bytes;
  int64_t item = 1;
};

class LegacyReader {
 public:
  explicit LegacyReader(const NamedBytes& file) : input_(file.bytes, file.name) {}

  Tree read() {
    const auto no_storages = [this](const StorageRef&) -> at::Tensor {
      input_.fail("a storage where none belongs");
    };
    input_.skip(kMagic.size());
    unpickle(input_, no_storages);  // the protocol's version
    const auto system = unpickle(input_, no_storages);
    const auto little_endian = find(system, "little_endian");
    if (!little_endian || !little_endian->isBool() || !little_endian->toBool()) {
      input_.fail("the file was written on a big-endian machine, which is not supported",
                  "load it with Python on this machine and save it again");
    }
    auto tree = unpickle(input_, [this](const StorageRef& storage) { return make(storage); });
    for (const auto& key : elements(unpickle(input_, no_storages))) fill(as_string(key, "storage key"));
    if (filled_ != storages_.size()) input_.fail("the file is damaged: storages are missing");
    return tree;
  }

 private:
  at::Tensor make(const StorageRef& storage) {
    auto& made = storages_[storage.key];
    if (made.bytes.defined()) return made.bytes;
    made.item = static_cast<int64_t>(c10::elementSize(storage.dtype));
    const auto left = static_cast<int64_t>(input_.left()) - promised_;
    if (storage.numel < 0 || storage.numel > left / made.item)
      input_.fail("the file is damaged: it ends too early");
    promised_ += storage.numel * made.item;
    made.bytes = at::zeros({storage.numel * made.item}, at::kByte);
    return made.bytes;
  }

  void fill(const std::string& key) {
    const auto found = storages_.find(key);
    const auto numel = input_.number<int64_t>();
    if (found == storages_.end() || numel != found->second.bytes.numel() / found->second.item) {
      input_.fail("the file is damaged: its storages do not match its tensors");
    }
    const auto data = input_.take(static_cast<uint64_t>(found->second.bytes.numel()));
    std::copy(data.begin(), data.end(), found->second.bytes.mutable_data_ptr<uint8_t>());
    ++filled_;
  }

  Cursor input_;
  std::unordered_map<std::string, LegacyStorage> storages_;
  int64_t promised_ = 0;  // bytes
  size_t filled_ = 0;
};

}  // namespace

bool is_legacy(std::span<const uint8_t> file) {
  return file.size() > kMagic.size() && std::equal(kMagic.begin(), kMagic.end(), file.begin());
}

Tree read_legacy(const NamedBytes& file) {
  return LegacyReader(file).read();
}

}  // namespace lockstep::checkpoint
