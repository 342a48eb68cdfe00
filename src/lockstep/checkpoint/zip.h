#pragma once
// Zip archives. Reading trusts nothing: every name, size and offset is checked against the file.

#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "lockstep/base/files/whole_file.h"
#include "lockstep/checkpoint/file.h"

namespace caffe2::serialize {
class PyTorchStreamWriter;
}

namespace lockstep::checkpoint {

uint32_t crc32_of(std::span<const uint8_t> bytes, uint32_t so_far = 0);

/// Does the file begin as a zip archive does?
bool is_zip(std::span<const uint8_t> file);

struct ZipRecord {
  std::string name;  // without the folder that all are in; empty for the folder
  uint32_t crc32 = 0;
  std::span<const uint8_t> data;  // as it lies in the file
  uint64_t size = 0;              // unpacked
  bool compressed = false;
};

/// The directory of an archive. Names are without the folder that all records are in, as torch's "archive/".
class ZipArchive {
 public:
  /// InputError for what is damaged or encrypted; it ends in the hint `again`. The data is not read yet.
  explicit ZipArchive(NamedBytes file, const char* again = kCopyAgain);

  const std::vector<ZipRecord>& records() const { return records_; }
  const std::string& comment() const { return comment_; }
  bool has(const std::string& name) const { return by_name_.contains(name); }
  /// The data of a stored record. InputError if it is missing, compressed or does not match its checksum;
  /// without `verify` the checksum is not computed.
  std::span<const uint8_t> bytes(const std::string& name, bool verify = true) const;
  std::string text(const std::string& name) const;
  /// Passes a record's unpacked data to the sink. InputError if it is damaged, before more than its size.
  void unpack(const ZipRecord& record, const base::ByteSink& sink) const;
  /// A record by its whole name. InputError if it is missing.
  const ZipRecord& member(const std::string& name) const;

 private:
  const ZipRecord& find(const std::string& name) const;

  NamedBytes file_;
  const char* again_;
  std::string folder_;
  std::vector<ZipRecord> records_;
  std::unordered_map<std::string, size_t> by_name_;
  std::string comment_;
};

/// Is the file what the archive holds under that name? InputError where the archive is none, or lacks it.
bool is_unpacked(const std::string& archive, const std::string& member, const std::string& path);

/// Writes it there. Nothing is left where the archive is damaged or there is no room.
void unpack(const std::string& archive, const std::string& member, const std::string& path);

/// Writes an archive whose records are what `records` writes. What the sink throws is rethrown at the end;
/// until then, it is in `failure`.
void write_archive(const base::ByteSink& sink,
                   const std::function<void(caffe2::serialize::PyTorchStreamWriter&,
                                            const std::exception_ptr& failure)>& records);

}  // namespace lockstep::checkpoint
