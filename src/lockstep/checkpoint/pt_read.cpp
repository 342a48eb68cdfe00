// Reading .pt: the archive's records checked, the pickle's opcodes taken one by one, tensors from their
// bytes.
#include <torch/types.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/memory.h"
#include "lockstep/checkpoint/legacy.h"
#include "lockstep/checkpoint/pt.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/checkpoint/seal.h"
#include "lockstep/checkpoint/unpickle.h"
#include "lockstep/checkpoint/zip.h"

namespace lockstep {

namespace {

constexpr int kNewestVersion = 10;  // caffe2/serialize/versions.h

class Archive {
 public:
  Archive(const checkpoint::NamedBytes& file, const ReadOptions& options) : file_(file), options_(options) {
    if (options.tensors) check_whole();
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
    const auto is_tensor = name.starts_with("data/");
    if (!sealed_ && (options_.tensors || !is_tensor) && checkpoint::crc32_of(data) != crc32) damaged(name);
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
    loaded = at::empty({size}, at::TensorOptions(at::kByte).device(options_.tensors ? at::kCPU : at::kMeta));
    if (options_.tensors) std::copy(bytes.begin(), bytes.end(), loaded.mutable_data_ptr<uint8_t>());
    return loaded;
  }

  checkpoint::NamedBytes file_;
  ReadOptions options_;
  bool sealed_ = false;
  std::string prefix_;
  std::unordered_map<std::string, checkpoint::ZipRecord> records_;
  std::unordered_map<std::string, at::Tensor> storages_;
};

Tree read(const checkpoint::NamedBytes& file, const ReadOptions& options) {
  if (checkpoint::is_zip(file.bytes)) return Archive(file, options).read();
  if (checkpoint::is_legacy(file.bytes)) return checkpoint::read_legacy(file);
  throw InputError("this is neither a .pt checkpoint nor a safetensors file", file.name,
                   "name a file written by lockstep, torch.save or safetensors");
}

Checksum checksum_of_pt(std::span<const uint8_t> file) {
  if (!checkpoint::is_zip(file)) return Checksum::none;
  return checkpoint::check_seal(file) == checkpoint::Seal::whole ? Checksum::whole_file
                                                                 : Checksum::each_record;
}

Tree read_named(const checkpoint::NamedBytes& file, const ReadOptions& options) {
  try {
    return base::with_memory_for(file.name, [&] { return read(file, options); });
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

Tree read_pt(const std::string& path, const ReadOptions& options) {
  const checkpoint::MappedFile file(path);
  return file.whole(read_named(file.named(), options));
}

Tree read_pt(std::span<const uint8_t> bytes, const std::string& name, const ReadOptions& options) {
  return read_named({bytes, name}, options);
}

CheckpointFile open_checkpoint_file(const std::string& path) {
  const checkpoint::MappedFile file(path);
  if (!is_safetensors(path))
    return file.whole(CheckpointFile{read_named(file.named(), {}), "pt", checksum_of_pt(file.bytes())});
  const bool sealed = checkpoint::check_safetensors_seal(file.bytes()) != checkpoint::Seal::missing;
  return {base::with_memory_for(path, [&] { return read_safetensors(path); }), "safetensors",
          sealed ? Checksum::whole_file : Checksum::none};
}

Tree read_checkpoint_file(const std::string& path) {
  return open_checkpoint_file(path).tree;
}

}  // namespace lockstep
