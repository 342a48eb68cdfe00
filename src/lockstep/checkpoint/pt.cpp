#include "lockstep/checkpoint/pt.h"

#include <ATen/core/jit_type.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/export.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/memory.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/frame.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/checkpoint/tree.h"
#include "lockstep/checkpoint/unpickle.h"
#include "lockstep/checkpoint/zip.h"

namespace lockstep {
namespace {

using checkpoint::Cursor, checkpoint::MappedFile, checkpoint::NamedBytes, checkpoint::StorageRef;

constexpr const char* kSaveOnThisMachine = "load it with Python on this machine and save it again";

// What torch.save wrote before PyTorch 1.6 (and writes with _use_new_zipfile_serialization=False): a run of
// pickles, then the storages, without checksums. torch/serialization.py: _legacy_save.

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
      input_.fail("the file is damaged: a storage is in the wrong place");
    };
    input_.skip(kMagic.size());
    checkpoint::unpickle(input_, no_storages);  // the protocol's version
    const auto system = checkpoint::unpickle(input_, no_storages);
    const auto little_endian = find(system, "little_endian");
    if (!little_endian || !little_endian->isBool() || !little_endian->toBool())
      input_.fail("the file was written on a big-endian machine, which is not supported",
                  "load it with Python on this machine and save it again");
    auto tree = checkpoint::unpickle(input_, [this](const StorageRef& storage) { return make(storage); });
    for (const auto& key : elements(checkpoint::unpickle(input_, no_storages)))
      fill(as_string(key, "storage key"));
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
    if (found == storages_.end() || numel != found->second.bytes.numel() / found->second.item)
      input_.fail("the file is damaged: its storages do not match its tensors");
    const auto data = input_.take(static_cast<uint64_t>(found->second.bytes.numel()));
    std::copy(data.begin(), data.end(), found->second.bytes.mutable_data_ptr<uint8_t>());
    ++filled_;
  }

  Cursor input_;
  std::unordered_map<std::string, LegacyStorage> storages_;
  int64_t promised_ = 0;  // bytes
  size_t filled_ = 0;
};

bool is_legacy(std::span<const uint8_t> file) {
  return file.size() > kMagic.size() && std::equal(kMagic.begin(), kMagic.end(), file.begin());
}

// Our own files end with a checksum over every byte before it, in the zip archive's comment.

constexpr size_t kEndRecord = 22;  // APPNOTE.TXT 4.3.16, without a comment
constexpr std::string_view kTag = "lockstep crc32 ";
constexpr size_t kComment = kTag.size() + 8;

/// Whether the file ends with our checksum. InputError if it does not match.
bool check_checksum(const NamedBytes& file) {
  if (file.bytes.size() < kEndRecord + kComment) return false;
  const auto end = file.bytes.last(kComment);
  const std::string_view comment(reinterpret_cast<const char*>(end.data()), end.size());
  if (!comment.starts_with(kTag)) return false;
  const auto crc = checkpoint::crc32_of(file.bytes.first(file.bytes.size() - kComment));
  if (comment.substr(kTag.size()) == format("{:08x}", crc)) return true;
  throw InputError("the file is damaged: it does not match its checksum", file.name, checkpoint::kCopyAgain);
}

/// Passes an archive on to another sink and adds the checksum.
class ChecksumSink {
 public:
  explicit ChecksumSink(const base::ByteSink& sink) : sink_(sink) {}

  void write(const void* data, size_t size) {
    const auto* bytes = static_cast<const char*>(data);
    if (size >= kEndRecord) {
      pass_on(held_.data(), held_.size());
      pass_on(bytes, size - kEndRecord);
      held_.assign(bytes + size - kEndRecord, kEndRecord);
      return;
    }
    held_.append(bytes, size);
    if (held_.size() <= kEndRecord) return;
    pass_on(held_.data(), held_.size() - kEndRecord);
    held_.erase(0, held_.size() - kEndRecord);
  }

  /// Writes what was held back.
  void finish() {
    if (held_.size() != kEndRecord || !held_.starts_with("PK\5\6") || held_[20] != 0 || held_[21] != 0)
      throw Error("the archive that libtorch wrote has no zip directory at its end");
    held_[20] = static_cast<char>(kComment);
    pass_on(held_.data(), held_.size());
    const auto comment = kTag.data() + format("{:08x}", crc_);
    sink_(comment.data(), comment.size());
  }

 private:
  void pass_on(const void* data, size_t size) {
    crc_ = checkpoint::crc32_of({static_cast<const uint8_t*>(data), size}, crc_);
    sink_(data, size);
  }

  const base::ByteSink& sink_;
  std::string held_;  // the last bytes, which may be the end record
  uint32_t crc_ = 0;
};

// Reading: the archive's records checked, the pickle's opcodes taken one by one, tensors from their bytes.

constexpr int kNewestVersion = 10;  // caffe2/serialize/versions.h

class Archive {
 public:
  /// With our checksum the file is checked as a whole; otherwise each record is, when it is read.
  explicit Archive(const NamedBytes& file) : name_(file.name), is_checked_(check_checksum(file)), zip_(file) {
    if (!zip_.comment().empty() && !is_checked_)
      throw InputError("the file is damaged: it has lost its checksum", name_, checkpoint::kCopyAgain);
    if (!zip_.has("data.pkl"))
      throw InputError("this zip archive is not a checkpoint: it holds no data.pkl", name_,
                       "name a file written by lockstep or by torch.save");
    if (zip_.has("constants.pkl"))
      throw InputError(
          "this is a TorchScript archive, not a checkpoint", name_,
          "use it as model.path with model.name: torchscript, or save its state_dict() with torch.save");
    if (zip_.has("byteorder") && zip_.text("byteorder") != "little")
      throw InputError("the file was written on a big-endian machine, which is not supported", name_,
                       kSaveOnThisMachine);
    if (zip_.has("version")) check_version(zip_.text("version"));
  }

  CheckpointFile read() {
    Cursor pickle(zip_.bytes("data.pkl", !is_checked_), name_);
    return {checkpoint::unpickle(pickle, [this](const StorageRef& storage) { return load(storage); }), "pt",
            is_checked_ ? Checksum::whole_file : Checksum::each_record};
  }

 private:
  void check_version(const std::string& text) const {
    int version = 0;
    std::from_chars(text.data(), text.data() + text.size(), version);
    if (version < 1)
      throw InputError("the file is damaged: its version is not a number", name_, checkpoint::kCopyAgain);
    if (version > kNewestVersion)
      throw InputError(
          format("the file has format version {}; lockstep reads versions up to {}", version, kNewestVersion),
          name_, "save it again with the PyTorch that lockstep is built with");
  }

  at::Tensor load(const StorageRef& storage) {
    auto& loaded = storages_[storage.key];
    if (loaded.defined()) return loaded;
    const auto bytes = zip_.bytes("data/" + storage.key, !is_checked_);
    const auto item = c10::elementSize(storage.dtype);
    if (storage.numel < 0 || static_cast<uint64_t>(storage.numel) > bytes.size() / item)
      throw InputError(format("the file is damaged: storage {} is shorter than it should be", storage.key),
                       name_, checkpoint::kCopyAgain);
    return loaded = checkpoint::copy_of(bytes);
  }

  const std::string& name_;
  bool is_checked_;
  checkpoint::ZipArchive zip_;
  std::unordered_map<std::string, at::Tensor> storages_;
};

CheckpointFile read_any(const NamedBytes& file) {
  if (checkpoint::is_zip(file.bytes)) return Archive(file).read();
  if (is_legacy(file.bytes)) return {LegacyReader(file).read(), "pt", Checksum::none};
  constexpr std::string_view kPointer = "version https://git-lfs";  // what a clone without git-lfs leaves
  if (file.bytes.size() > kPointer.size() && std::equal(kPointer.begin(), kPointer.end(), file.bytes.begin()))
    throw InputError("the file is a git-lfs pointer and holds no weights", file.name,
                     "get the file with `git lfs pull` in its folder");
  if (!is_safetensors(file.bytes))
    throw InputError("this is neither a .pt checkpoint nor a safetensors file", file.name,
                     "name a file written by lockstep, torch.save or safetensors");
  bool has_checksum = false;
  auto tree = read_safetensors(file.bytes, file.name, has_checksum);
  return {std::move(tree), "safetensors", has_checksum ? Checksum::whole_file : Checksum::none};
}

CheckpointFile read_named(const NamedBytes& file) {
  try {
    return base::with_memory_for(file.name, [&] { return read_any(file); });
  } catch (const InputError& error) {
    if (!error.where().empty()) throw;
    throw InputError(error.what(), file.name, error.hint());
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {  // libtorch's own checks
    throw InputError(format("the file is damaged: {}", error.what_without_backtrace()), file.name,
                     checkpoint::kCopyAgain);
  }
}

}  // namespace

CheckpointFile open_checkpoint_file(const std::string& path) {
  const MappedFile file(path);
  return file.whole(read_named(file.named()));
}

Tree read_checkpoint_file(const std::string& path) {
  return open_checkpoint_file(path).tree;
}

Tree read_pt(const std::string& path) {
  return read_checkpoint_file(path);
}

Tree read_pt(std::span<const uint8_t> bytes, const std::string& name) {
  return read_named({bytes, name}).tree;
}

// Writing: plain dictionaries and lists, dense tensors, and our checksum at the end.

static_assert(std::endian::native == std::endian::little, "the byteorder record says little");

std::string checkpoint::pickle_tree(const Tree& tree, std::vector<at::Tensor>& storages) {
  std::unordered_map<const c10::StorageImpl*, at::ScalarType> dtypes;
  // plain dictionaries and lists throughout: typed ones are pickled with TorchScript's tags
  const auto copy = map_tensors(tree, [&](const at::Tensor& tensor) -> Tree {
    require_dense(tensor);
    const auto dtype = tensor.scalar_type();
    if (dtypes.emplace(tensor.storage().unsafeGetStorageImpl(), dtype).first->second != dtype)
      throw Error("two tensors of different dtypes share memory", "the tree",
                  "give a clone() of one of them");
    return tensor.detach();
  });
  std::string pickle;
  torch::jit::Pickler pickler([&](const char* data, size_t size) { pickle.append(data, size); }, nullptr,
                              nullptr, nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(copy);
  pickler.stop();
  for (const auto& tensor : pickler.tensorData()) {
    const auto size =
        static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size() * tensor.element_size());
    storages.push_back(
        at::empty({0}, tensor.options().dtype(at::kByte)).set_(tensor.storage(), 0, {size}, {1}));
  }
  return pickle;
}

checkpoint::StoredTree checkpoint::unpickle_tree(std::span<const uint8_t> pickle, const std::string& name) {
  StoredTree made;
  Cursor input(pickle, name);
  made.tree = unpickle(input, [&](const StorageRef& storage) {
    if (storage.key == std::to_string(made.storages.size())) {
      const auto item = static_cast<int64_t>(c10::elementSize(storage.dtype));
      made.storages.push_back(at::empty({storage.numel * item}, at::kByte));
    }
    return made.storages.at(std::stoul(storage.key));
  });
  return made;
}

void write_pt(const base::ByteSink& sink, const Tree& tree) {
  std::vector<at::Tensor> storages;
  const auto pickle = checkpoint::pickle_tree(tree, storages);
  ChecksumSink with_checksum(sink);
  const auto write = [&](const void* data, size_t size) { with_checksum.write(data, size); };
  checkpoint::write_archive(write, [&](caffe2::serialize::PyTorchStreamWriter& archive, auto&) {
    archive.writeRecord("byteorder", "little", 6);
    torch::jit::writeArchiveAndTensors("data", pickle.data(), pickle.size(), storages, archive);
  });
  with_checksum.finish();
}

void write_pt(const std::string& path, const Tree& tree) {
  base::write_whole(path, [&](const base::ByteSink& sink) { write_pt(sink, tree); });
}

}  // namespace lockstep
