#include "lockstep/checkpoint/pt.h"

#include <ATen/core/jit_type.h>
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
#include "lockstep/checkpoint/archive_writer.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/frame.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/checkpoint/seal.h"
#include "lockstep/checkpoint/tree.h"
#include "lockstep/checkpoint/unpickle.h"
#include "lockstep/checkpoint/zip.h"

namespace lockstep::checkpoint {
namespace {

// What torch.save wrote before PyTorch 1.6 (and writes with _use_new_zipfile_serialization=False): a run of
// pickles, then the storages. It has no checksums.

// torch/serialization.py: _legacy_save.

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

bool is_legacy(std::span<const uint8_t> file) {
  return file.size() > kMagic.size() && std::equal(kMagic.begin(), kMagic.end(), file.begin());
}

Tree read_legacy(const NamedBytes& file) {
  return LegacyReader(file).read();
}

}  // namespace

}  // namespace lockstep::checkpoint

namespace lockstep {

// Reading .pt: the archive's records checked, the pickle's opcodes taken one by one, tensors from their
// bytes.

namespace {

constexpr int kNewestVersion = 10;  // caffe2/serialize/versions.h

class Archive {
 public:
  explicit Archive(const checkpoint::NamedBytes& file) : file_(file) {
    check_whole();
    auto archive = checkpoint::read_zip(file.bytes, file.name);
    if (!archive.comment.empty() && checkpoint::check_seal(file.bytes) == checkpoint::Seal::missing)
      damaged("its seal");
    for (auto& record : archive.records) records_.emplace(record.name, std::move(record));
    find_prefix();
    check_kind();
  }

  Tree read() {
    checkpoint::Cursor pickle(record("data.pkl"), file_.name);
    return checkpoint::unpickle(pickle,
                                [this](const checkpoint::StorageRef& storage) { return load(storage); });
  }

 private:
  [[noreturn]] void damaged(const std::string& what) const {
    throw InputError(format("the file is damaged: {} does not match its checksum", what), file_.name,
                     "take an earlier checkpoint");
  }

  /// A file of our own is checked as a whole; of any other each record is, when it is read.
  void check_whole() {
    const auto seal = checkpoint::check_seal(file_.bytes);
    if (seal == checkpoint::Seal::broken) damaged("the file");
    sealed_ = seal == checkpoint::Seal::whole;
  }

  /// Every name begins with the archive's own: "archive/data.pkl".
  void find_prefix() {
    for (const auto& [name, record] : records_) {
      const auto slash = name.find('/');
      if (slash != std::string::npos && name.substr(slash) == "/data.pkl")
        prefix_ = name.substr(0, slash + 1);
    }
    if (prefix_.empty()) {
      throw InputError("this zip archive is no checkpoint: it holds no data.pkl", file_.name,
                       "name a file written by lockstep or by torch.save");
    }
  }

  void check_kind() {
    if (records_.contains(prefix_ + "constants.pkl")) {
      throw InputError(
          "this is a TorchScript archive, not a checkpoint", file_.name,
          "use it as model.path with model.name: torchscript, or save its state_dict() with torch.save");
    }
    if (records_.contains(prefix_ + "byteorder") && text("byteorder") != "little") {
      throw InputError("the file was written on a big-endian machine, which is not supported", file_.name,
                       "load it with Python on this machine and save it again");
    }
    if (records_.contains(prefix_ + "version")) check_version(text("version"));
  }

  void check_version(const std::string& text) const {
    int version = 0;
    std::from_chars(text.data(), text.data() + text.size(), version);
    if (version < 1) damaged("its version");
    if (version > kNewestVersion) {
      throw InputError(
          format("the file is of format version {}; versions up to {} are known", version, kNewestVersion),
          file_.name, "save it again with the PyTorch that lockstep is built with");
    }
  }

  std::span<const uint8_t> record(const std::string& name) const {
    const auto found = records_.find(prefix_ + name);
    if (found == records_.end()) {
      throw InputError(format("the file is damaged: it has no {}", name), file_.name, checkpoint::kCopyAgain);
    }
    const auto& [full_name, crc32, data, compressed] = found->second;
    if (compressed) {
      throw InputError(format("{} is compressed, which torch.save never does", name), file_.name,
                       "unpack the archive and zip it again with `zip -0`");
    }
    if (!sealed_ && checkpoint::crc32_of(data) != crc32) damaged(name);
    return data;
  }

  std::string text(const std::string& name) const {
    const auto bytes = record(name);
    return {bytes.begin(), bytes.end()};
  }

  at::Tensor load(const checkpoint::StorageRef& storage) {
    auto& loaded = storages_[storage.key];
    if (loaded.defined()) return loaded;
    const auto bytes = record("data/" + storage.key);
    const auto item = c10::elementSize(storage.dtype);
    if (storage.numel < 0 || static_cast<uint64_t>(storage.numel) > bytes.size() / item) {
      throw InputError(format("the file is damaged: storage {} is shorter than it should be", storage.key),
                       file_.name, checkpoint::kCopyAgain);
    }
    const auto size = static_cast<int64_t>(bytes.size());
    loaded = at::empty({size}, at::kByte);
    std::copy(bytes.begin(), bytes.end(), loaded.mutable_data_ptr<uint8_t>());
    return loaded;
  }

  checkpoint::NamedBytes file_;
  bool sealed_ = false;
  std::string prefix_;
  std::unordered_map<std::string, checkpoint::ZipRecord> records_;
  std::unordered_map<std::string, at::Tensor> storages_;
};

Tree read(const checkpoint::NamedBytes& file) {
  if (checkpoint::is_zip(file.bytes)) return Archive(file).read();
  if (checkpoint::is_legacy(file.bytes)) return checkpoint::read_legacy(file);
  throw InputError("this is neither a .pt checkpoint nor a safetensors file", file.name,
                   "name a file written by lockstep, torch.save or safetensors");
}

Checksum checksum_of_pt(std::span<const uint8_t> file) {
  if (!checkpoint::is_zip(file)) return Checksum::none;
  return checkpoint::check_seal(file) == checkpoint::Seal::whole ? Checksum::whole_file
                                                                 : Checksum::each_record;
}

Tree read_named(const checkpoint::NamedBytes& file) {
  try {
    return base::with_memory_for(file.name, [&] { return read(file); });
  } catch (const InputError& error) {
    if (!error.where().empty()) throw;
    throw InputError(error.what(), file.name, error.hint());
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {  // a last net: libtorch's own checks
    throw InputError(format("the file is damaged: {}", error.what_without_backtrace()), file.name,
                     checkpoint::kCopyAgain);
  }
}

}  // namespace

Tree read_pt(const std::string& path) {
  const checkpoint::MappedFile file(path);
  return file.whole(read_named(file.named()));
}

Tree read_pt(std::span<const uint8_t> bytes, const std::string& name) {
  return read_named({bytes, name});
}

CheckpointFile open_checkpoint_file(const std::string& path) {
  const checkpoint::MappedFile file(path);
  if (!is_safetensors(path))
    return file.whole(CheckpointFile{read_named(file.named()), "pt", checksum_of_pt(file.bytes())});
  const bool sealed = checkpoint::check_safetensors_seal(file.bytes()) != checkpoint::Seal::missing;
  return {base::with_memory_for(path, [&] { return read_safetensors(path); }), "safetensors",
          sealed ? Checksum::whole_file : Checksum::none};
}

Tree read_checkpoint_file(const std::string& path) {
  return open_checkpoint_file(path).tree;
}

// Writing .pt: plain dictionaries and lists, dense tensors, and a seal over the whole file at its end.

static_assert(std::endian::native == std::endian::little, "the byteorder record says little");

void write_pt(const base::ByteSink& sink, const Tree& tree) {
  checkpoint::SealingSink sealed(sink);
  // plain dictionaries and lists throughout: typed ones are pickled with TorchScript's tags
  const auto copy = checkpoint::map_tensors(tree, [](const at::Tensor& tensor) -> Tree {
    checkpoint::require_dense(tensor);
    return tensor.detach();
  });
  std::string pickle;
  torch::jit::Pickler pickler([&](const char* data, size_t size) { pickle.append(data, size); }, nullptr,
                              nullptr, nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(copy);
  pickler.stop();
  const auto into_seal = [&](const void* data, size_t size) { sealed.write(data, size); };
  checkpoint::write_archive(into_seal, [&](caffe2::serialize::PyTorchStreamWriter& archive) {
    archive.writeRecord("byteorder", "little", 6);
    torch::jit::writeArchiveAndTensors("data", pickle.data(), pickle.size(), pickler.tensorData(), archive);
  });
  sealed.finish();
}

void write_pt(const std::string& path, const Tree& tree) {
  base::write_whole(path, [&](const base::ByteSink& sink) { write_pt(sink, tree); });
}

}  // namespace lockstep
