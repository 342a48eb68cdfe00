#pragma once
// The records of a file that torch.export.save wrote, each checked before it is read.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/zip.h"

namespace lockstep::exported {

/// What to do about a file that cannot be used.
inline constexpr const char* kExportAgain =
    "export it again: torch.export.save(torch.export.export(model.train(), inputs), \"model.pt2\")";

class Archive {
 public:
  /// InputError for what is no such file, or one of a torch before 2.9, which wrote another layout.
  explicit Archive(const std::string& path);

  const std::string& path() const { return file_.path(); }
  /// What was read from it, unless the file became shorter meanwhile: then an Error.
  template <class Value>
  Value whole(Value value) const {
    return file_.whole(std::move(value));
  }
  /// All records, the archive's own folder among their names.
  const std::vector<checkpoint::ZipRecord>& records() const { return zip_.records; }
  /// A record's name without the archive's own folder.
  std::string short_name(const checkpoint::ZipRecord& record) const;

  /// Of names without the archive's own folder.
  bool has(const std::string& name) const { return by_name_.contains(name); }
  /// InputError where there is none, or its checksum is wrong.
  std::span<const uint8_t> bytes(const std::string& name) const;
  /// A few hex digits that tell the record from others.
  std::string digest(const std::string& name) const;
  /// InputError for what is no JSON, too, or too much of it.
  nlohmann::json json(const std::string& name) const;

 private:
  void check_layout() const;
  std::string text(const std::string& name) const;
  void expect(const std::string& name, const std::string& wanted) const;
  [[noreturn]] void refuse(const std::string& what, const std::string& hint = kExportAgain) const;

  checkpoint::MappedFile file_;
  checkpoint::ZipArchive zip_;
  std::string folder_;  // "model/"
  std::unordered_map<std::string, const checkpoint::ZipRecord*> by_name_;
};

}  // namespace lockstep::exported
