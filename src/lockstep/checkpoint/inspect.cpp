#include "lockstep/checkpoint/inspect.h"

#include <torch/types.h>

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/checkpoint_files.h"
#include "lockstep/base/format.h"
#include "lockstep/base/memory.h"
#include "lockstep/checkpoint/pt.h"
#include "lockstep/checkpoint/store.h"

namespace lockstep::checkpoint {

namespace {

std::string key_text(const Tree& key) {
  if (key.isString()) return key.toStringRef();
  if (key.isInt()) return std::to_string(key.toInt());
  if (key.isBool()) return key.toBool() ? "True" : "False";
  return format("{}", key.toDouble());
}

InspectedEntry plain_entry(const Tree& tree) {
  if (tree.isInt()) return {.name = {}, .kind = "int", .value = std::to_string(tree.toInt())};
  if (tree.isDouble()) return {.name = {}, .kind = "float", .value = format("{}", tree.toDouble())};
  if (tree.isBool()) return {.name = {}, .kind = "bool", .value = tree.toBool() ? "true" : "false"};
  if (tree.isString()) return {.name = {}, .kind = "text", .value = tree.toStringRef()};
  return {.name = {}, .kind = "none"};
}

class Inspector {
 public:
  Inspector(const Digest& digest, const std::string& path, InspectedFile& file)
      : digest_(digest), path_(path), entries_(file.entries), allowance_(file.file_bytes) {}

  void visit(const std::string& name, const Tree& tree) {
    const auto join = [&](const std::string& key) { return name.empty() ? key : name + "." + key; };
    if (tree.isTensor()) return add(inspect_tensor(name, tree.toTensor(), digest_));
    if (tree.isGenericDict()) {
      const auto all = items(tree);
      if (all.empty()) return add({.name = name, .kind = "empty", .value = "{}"});
      for (const auto& [key, value] : all) visit(join(key_text(key)), value);
    } else if (tree.isList() || tree.isTuple()) {
      const auto all = elements(tree);
      if (all.empty()) return add({.name = name, .kind = "empty", .value = "[]"});
      for (size_t i = 0; i < all.size(); ++i) visit(join(std::to_string(i)), all[i]);
    } else {
      auto entry = plain_entry(tree);
      entry.name = name;
      add(std::move(entry));
    }
  }

 private:
  /// Long names around many values make a list that is much larger than the file.
  void add(InspectedEntry entry) {
    if (!allowance_.take(sizeof entry + 2 * (entry.name.size() + entry.value.size())))
      throw InputError("the file holds more values than can be listed", path_,
                       "in Python, save long lists as tensors");
    entries_.push_back(std::move(entry));
  }

  const Digest& digest_;
  const std::string& path_;
  std::vector<InspectedEntry>& entries_;
  base::Allowance allowance_;
};

}  // namespace

InspectedEntry inspect_tensor(const std::string& name, const at::Tensor& tensor, const Digest& digest) {
  const auto whole = tensor.detach().contiguous();
  const std::span<const uint8_t> bytes(static_cast<const uint8_t*>(whole.const_data_ptr()), whole.nbytes());
  return {.name = name,
          .kind = "tensor",
          .dtype = std::string(c10::getDtypeNames(tensor.scalar_type()).first),
          .shape = tensor.sizes().vec(),
          .bytes = bytes.size(),
          .digest = digest(bytes)};
}

std::string file_to_inspect(const std::string& path) {
  std::error_code failed;
  if (!std::filesystem::is_directory(path, failed)) return path;
  if (auto newest = base::newest_by_name(checkpoints_of(path).folder()); !newest.empty()) return newest;
  throw InputError("this is a folder, not a file, and there is no checkpoint in it", path,
                   "name another run's folder, or a .pt or safetensors file");
}

InspectedFile inspect_file(const std::string& path, const Digest& digest) {
  const auto content = open_checkpoint_file(path);
  InspectedFile file{.format = content.format,
                     .file_bytes = std::filesystem::file_size(path),
                     .checksum = content.checksum,
                     .entries = {}};
  base::with_memory_for(path, [&] { Inspector(digest, path, file).visit("", content.tree); });
  return file;
}

}  // namespace lockstep::checkpoint
