#pragma once
// A file that somebody else may have written: mapped, read within its bounds, its tensors checked first.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/checkpoint/tree.h"

namespace lockstep::checkpoint {

/// What to do about a damaged file.
inline constexpr const char* kCopyAgain = "copy the file again; for a checkpoint, use an earlier one";

/// Reads little-endian numbers and runs of bytes, and never past the end.
class Cursor {
 public:
  Cursor(std::span<const uint8_t> bytes, std::string file) : bytes_(bytes), file_(std::move(file)) {}

  size_t position() const { return position_; }
  size_t left() const { return bytes_.size() - position_; }
  const std::string& file() const { return file_; }

  std::span<const uint8_t> take(uint64_t count) {
    if (count > left()) fail("the file is damaged: it ends too early");
    const auto taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }
  void skip(uint64_t count) { take(count); }

  template <class Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  std::string_view text(uint64_t count) {
    const auto taken = take(count);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

  /// Up to the next newline, which is skipped.
  std::string_view line() {
    const auto rest = bytes_.subspan(position_);
    const auto* end = static_cast<const uint8_t*>(std::memchr(rest.data(), '\n', rest.size()));
    if (!end) fail("the file is damaged: a line does not end");
    const auto found = text(static_cast<size_t>(end - rest.data()));
    ++position_;
    return found;
  }

  [[noreturn]] void fail(const std::string& what, const std::string& hint = kCopyAgain) const {
    throw InputError(what, file_, hint);
  }

 private:
  std::span<const uint8_t> bytes_;
  std::string file_;
  size_t position_ = 0;
};

/// A file's bytes, wherever they are, and what errors call the file.
struct NamedBytes {
  std::span<const uint8_t> bytes;
  std::string name;
};

/// A file's bytes, read-only. InputError, which calls the file `what` and ends in `hint`, if it is missing, a
/// folder, empty or unreadable.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path, const char* what = "the checkpoint",
                      const char* hint = "name a .pt or .safetensors file, or a run's folder");

  const std::string& path() const { return path_; }
  std::span<const uint8_t> bytes() const {
    return {reinterpret_cast<const uint8_t*>(map_->data()), map_->size()};
  }
  /// What was read from it. Error if the file has become shorter meanwhile.
  template <class Value>
  Value whole(Value value) const {
    map_->refuse_cut();
    return value;
  }
  /// Valid as long as this object, or its map.
  NamedBytes named() const { return {bytes(), path_}; }
  const std::shared_ptr<base::FileMap>& map() const { return map_; }
  int number() const { return file_.number(); }

 private:
  std::string path_;
  base::RegularFile file_;
  std::shared_ptr<base::FileMap> map_;
};

at::Tensor copy_of(std::span<const uint8_t> bytes);
/// A view of a part of the map, which it keeps.
at::Tensor view_of(const std::shared_ptr<base::FileMap>& map, std::span<const uint8_t> bytes);

/// As read_safetensors(), but the tensors are views of the file, not always aligned, and keep it mapped.
Tree map_safetensors(const MappedFile& file);

/// How a file describes a tensor.
struct TensorClaim {
  at::ScalarType dtype;
  int64_t offset = 0;  // in elements
  std::vector<int64_t> sizes = {}, strides = {};
};

inline constexpr size_t kMostDimensions = 64;  ///< of a tensor that is rebuilt

/// A view of the bytes. InputError (through `input`, which knows the file) where it would reach beyond them.
at::Tensor rebuild_tensor(const at::Tensor& bytes, const TensorClaim& claim, const Cursor& input);

}  // namespace lockstep::checkpoint
