#include "lockstep/checkpoint/inspect.h"

#include <torch/types.h>

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/checkpoint_files.h"
#include "lockstep/base/format.h"
#include "lockstep/base/memory.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/pt.h"
#include "lockstep/checkpoint/store.h"
#include "lockstep/checkpoint/unpickle.h"

namespace lockstep::checkpoint {

namespace {

class Inspector {
 public:
  Inspector(const Digest& digest, const std::string& path, InspectedFile& file)
      : digest_(digest), path_(path), entries_(file.entries), allowance_(file.file_bytes) {}

  void visit(const std::string& name, const Tree& tree) {
    if (tree.isTensor()) return add_tensor(name, tree.toTensor());
    if (tree.isGenericDict()) {
      const auto all = items(tree);
      if (all.empty()) return add(name, "empty", "{}");
      for (const auto& [key, value] : all) visit(join(name, key_text(key)), value);
    } else if (tree.isList() || tree.isTuple()) {
      const auto all = elements(tree);
      if (all.empty()) return add(name, "empty", "[]");
      for (size_t i = 0; i < all.size(); ++i) visit(join(name, std::to_string(i)), all[i]);
    } else {
      add_plain(name, tree);
    }
  }

 private:
  static std::string join(const std::string& name, const std::string& key) {
    return name.empty() ? key : name + "." + key;
  }

  static std::string key_text(const Tree& key) {
    if (key.isString()) return key.toStringRef();
    if (key.isInt()) return std::to_string(key.toInt());
    if (key.isBool()) return key.toBool() ? "True" : "False";
    return format("{}", key.toDouble());
  }

  void add(const std::string& name, const std::string& kind, const std::string& value) {
    hold({.name = name, .kind = kind, .value = value});
  }

  void add_plain(const std::string& name, const Tree& tree) {
    if (tree.isInt()) return add(name, "int", std::to_string(tree.toInt()));
    if (tree.isDouble()) return add(name, "float", format("{}", tree.toDouble()));
    if (tree.isBool()) return add(name, "bool", tree.toBool() ? "true" : "false");
    if (tree.isString()) return add(name, "text", tree.toStringRef());
    add(name, "none", "");
  }

  void add_tensor(const std::string& name, const at::Tensor& tensor) {
    const auto whole = tensor.contiguous();
    const std::span<const uint8_t> bytes(static_cast<const uint8_t*>(whole.const_data_ptr()), whole.nbytes());
    hold({.name = name,
          .kind = "tensor",
          .dtype = dtype_name(tensor.scalar_type()),
          .shape = tensor.sizes().vec(),
          .bytes = bytes.size(),
          .digest = digest_(bytes)});
  }

  /// Long names around many values make a list that is much larger than the file.
  void hold(InspectedEntry entry) {
    if (!allowance_.take(sizeof entry + 2 * (entry.name.size() + entry.value.size()))) {
      throw InputError("the file holds more values than can be listed", path_,
                       "in Python, save long lists as tensors");
    }
    entries_.push_back(std::move(entry));
  }

  const Digest& digest_;
  const std::string& path_;
  std::vector<InspectedEntry>& entries_;
  base::Allowance allowance_;
};

}  // namespace

std::string file_to_inspect(const std::string& path) {
  std::error_code failed;
  if (!std::filesystem::is_directory(path, failed)) return path;
  if (auto newest = base::newest_by_name(checkpoints_of(path).folder()); !newest.empty()) return newest;
  throw InputError("this is a folder, not a file, and there is no checkpoint in it", path,
                   "name a run's folder (runs/NAME), or a .pt or safetensors file");
}

InspectedFile inspect_file(const std::string& path, const Digest& digest) {
  InspectedFile file;
  file.file_bytes = MappedFile(path).bytes().size();
  const auto content = open_checkpoint_file(path);
  file.format = content.format;
  file.checksum = content.checksum;
  base::with_memory_for(path, [&] { Inspector(digest, path, file).visit("", content.tree); });
  return file;
}

}  // namespace lockstep::checkpoint
