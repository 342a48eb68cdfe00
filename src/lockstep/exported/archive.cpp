// https://docs.pytorch.org/docs/stable/export/pt2_archive.html: a zip of stored records in one folder.
#include "lockstep/exported/archive.h"

#include "lockstep/base/files/sha256.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/seal.h"

namespace lockstep::exported {
namespace {

constexpr size_t kMostText = size_t{64} << 20;
constexpr const char* kCopy = "copy the file again, or export it again";

constexpr checkpoint::FileWords kWords = {"the exported model", "the file is empty",
                                          "name the .pt2 file that torch.export.save wrote", kCopy};

}  // namespace

Archive::Archive(const std::string& path) : file_(path, kWords) {
  if (!checkpoint::is_zip(file_.bytes())) refuse("this is no file of torch.export.save");
  zip_ = checkpoint::read_zip(file_.bytes(), path);
  if (!zip_.records.empty()) {
    const auto& first = zip_.records.front().name;
    folder_ = first.substr(0, first.find('/') + 1);
  }
  for (const auto& record : zip_.records) {
    if (!by_name_.emplace(short_name(record), &record).second)
      refuse(format("the archive holds {} twice", base::printable(short_name(record))), kCopy);
  }
  check_layout();
}

std::string Archive::short_name(const checkpoint::ZipRecord& record) const {
  return record.name.starts_with(folder_) ? record.name.substr(folder_.size()) : record.name;
}

void Archive::check_layout() const {
  for (const char* name : {"serialized_exported_program.json", "serialized_exported_program"}) {
    if (has(name))
      refuse("the file is of a torch before 2.9, which wrote another layout",
             std::string("with torch 2.9 or newer ") + kExportAgain);
  }
  if (has("constants.pkl")) {
    refuse("this is a TorchScript module",
           "take model.name torchscript for it, or export the model with torch.export.save");
  }
  if (has("data.pkl"))
    refuse("this is a file of torch.save: it holds tensors, and no model",
           "export the model with torch.export.save");
  if (!has("archive_format")) refuse("this is no file of torch.export.save");
  expect("archive_format", "pt2");
  if (has("archive_version")) expect("archive_version", "0");
  if (has("byteorder")) expect("byteorder", "little");
  if (!has("models/model.json")) {
    refuse("the archive holds no model called \"model\"",
           "torch.export.save writes one; a package of AOTInductor cannot be trained");
  }
}

void Archive::expect(const std::string& name, const std::string& wanted) const {
  if (const auto found = text(name); found != wanted)
    refuse(
        format("the archive's {} is \"{}\", and \"{}\" can be read", name, base::printable(found), wanted));
}

std::span<const uint8_t> Archive::bytes(const std::string& name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) refuse(format("the archive holds no {}", base::printable(name)), kCopy);
  const auto& record = *found->second;
  if (record.compressed)
    refuse(format("{} is compressed in the archive", base::printable(name)),
           "unpack it, and zip it again with `zip -0 -r`");
  if (checkpoint::crc32_of(record.data) != record.crc32)
    refuse(format("{} is damaged in the archive", base::printable(name)), kCopy);
  return record.data;
}

std::string Archive::digest(const std::string& name) const {
  constexpr size_t kDigits = 16;
  const auto found = bytes(name);
  base::Sha256 sum;
  sum.add(found.data(), found.size());
  return sum.hex().substr(0, kDigits);
}

std::string Archive::text(const std::string& name) const {
  const auto found = bytes(name);
  if (found.size() > kMostText)
    refuse(format("{} is larger than {} MiB", base::printable(name), kMostText >> 20));
  return {reinterpret_cast<const char*>(found.data()), found.size()};
}

nlohmann::json Archive::json(const std::string& name) const {
  auto parsed = base::parse_json(text(name));
  if (!parsed.is_object()) refuse(format("{} is no JSON, or nested too deeply", base::printable(name)));
  return parsed;
}

void Archive::refuse(const std::string& what, const std::string& hint) const {
  throw InputError(what, path(), hint);
}

}  // namespace lockstep::exported
