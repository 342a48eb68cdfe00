#include "tools/doctor/job/folder_view.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <vector>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/base/write_all.h"
#include "tools/doctor/job/probes.h"
#include "tools/doctor/job/within.h"

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostEntries = 1000;
constexpr size_t kOpenedFiles = 32;
constexpr size_t kProbeBytes = 256 << 10;
constexpr int kDepth = 2;  // torchvision's MNIST/raw

std::string reason(int code) {
  return std::strerror(code);
}

// As the run folder's own check: up to what is there.
fs::path nearest(fs::path path) {
  std::error_code failed;
  while (path.has_relative_path() && !fs::exists(path, failed) && !failed) path = path.parent_path();
  return path;
}

std::string why_unopened(const fs::path& file) {
  const base::Descriptor opened(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  char byte = 0;
  if (opened && ::read(opened.number(), &byte, 1) >= 0) return "";
  return format("{}: {}", base::printable(file.filename().string()), reason(errno));
}

// Names and sizes in order, whatever order the file system has them in.
class Listing {
 public:
  explicit Listing(FolderView& view) : view_(view) {}

  void read(const fs::path& place) {
    fs::is_directory(place) ? read(place, place, 1) : take(fs::directory_entry(place), place.parent_path());
    base::Sha256 digest;
    for (const auto& [name, size] : sizes_) {
      const auto line = format("{}\n{}\n", name, size);
      digest.add(line.data(), line.size());
    }
    view_.entries = static_cast<long long>(sizes_.size());
    view_.digest = whole_ ? digest.hex() : "";
  }

 private:
  void read(const fs::path& root, const fs::path& folder, int depth) {
    std::error_code failed;
    std::vector<fs::path> inner;
    for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end;
         entry.increment(failed)) {
      if (sizes_.size() >= kMostEntries) {
        whole_ = false;  // which of them were seen is the file system's choice
        return;
      }
      take(*entry, root);
      std::error_code unknown;
      if (entry->is_directory(unknown)) inner.push_back(entry->path());
    }
    if (failed && view_.unreadable.empty()) view_.unreadable = failed.message();
    if (depth == kDepth) return;
    for (const auto& next : inner) read(root, next, depth + 1);
  }

  void take(const fs::directory_entry& entry, const fs::path& root) {
    std::error_code unknown;
    const bool is_file = entry.is_regular_file(unknown);
    sizes_[entry.path().lexically_relative(root).string()] = is_file ? size_of(entry) : -1;
    if (is_file) open(entry.path());
  }

  static long long size_of(const fs::directory_entry& entry) {
    std::error_code unknown;
    const auto size = entry.file_size(unknown);
    return unknown ? -2 : static_cast<long long>(size);
  }

  void open(const fs::path& file) {
    if (opened_++ >= kOpenedFiles || !view_.unreadable.empty()) return;
    view_.unreadable = why_unopened(file);
  }

  FolderView& view_;
  bool whole_ = true;
  size_t opened_ = 0;
  std::map<std::string, long long> sizes_;
};

bool write_whole(int file) {
  return base::write_all(file, std::string(kProbeBytes, 'x')) && (::fsync(file) == 0 || errno == EINVAL);
}

// By doing it: a file system may be read-only, full or over a quota whatever the permissions say.
std::string why_unwritten(const fs::path& folder) {
  try {
    Probe probe(folder.string(), kProbeName, Probe::Kind::file);
    return write_whole(probe.file().number()) && probe.file().close() ? "" : reason(errno);
  } catch (const Error& error) {
    return error.what();
  }
}

void measure(FolderView& view) {
  struct statfs kind {};
  if (::statfs(view.there.c_str(), &kind) == 0) view.kind = file_system_name(kind.f_type);
  struct statvfs room {};
  if (::statvfs(view.there.c_str(), &room) == 0 && room.f_blocks > 0)
    view.free = static_cast<long long>(room.f_bavail) * static_cast<long long>(room.f_frsize);
}

FolderView view_folder(const std::string& path, Purpose purpose) {
  FolderView view;
  const bool to_read = purpose == Purpose::to_read;
  view.there = to_read ? path : nearest(path).string();
  std::error_code failed;
  const auto status = fs::status(view.there, failed);
  const bool is_file = to_read && status.type() == fs::file_type::regular;
  if (status.type() != fs::file_type::directory && !is_file) {
    view.unreadable = failed ? failed.message() : fs::exists(status) ? reason(ENOTDIR) : reason(ENOENT);
    if (!to_read) view.unwritable = view.unreadable;
    return view;
  }
  measure(view);
  to_read ? Listing(view).read(view.there) : void(view.unwritable = why_unwritten(view.there));
  return view;
}

}  // namespace

FolderView view_of(const std::string& path, Purpose purpose, std::chrono::milliseconds patience) {
  if (auto seen = within<FolderView>(patience, [=] { return view_folder(path, purpose); })) return *seen;
  FolderView view;
  view.answered = false;
  view.there = path;
  return view;
}

std::string pack(const FolderView& view) {
  return base::pack_texts({std::to_string(view.rank), std::to_string(view.node), view.host,
                           view.answered ? "1" : "0", view.there, view.unreadable, view.unwritable, view.kind,
                           std::to_string(view.free), std::to_string(view.entries), view.digest});
}

FolderView unpack_view(const std::string& text) {
  const auto parts = base::unpack_texts(text);
  if (parts.size() != 11) throw Error("this is no view of a folder", "lockstep doctor");
  return {.rank = std::stoi(parts[0]),
          .node = std::stoi(parts[1]),
          .host = parts[2],
          .answered = parts[3] == "1",
          .there = parts[4],
          .unreadable = parts[5],
          .unwritable = parts[6],
          .kind = parts[7],
          .free = std::stoll(parts[8]),
          .entries = std::stoll(parts[9]),
          .digest = parts[10]};
}

std::string file_system_name(long magic) {
  static const std::map<long, const char*> names = {
      {0x6969, "nfs"},       {0x0BD00BD0, "lustre"}, {0x47504653, "gpfs"},    {0x19830326, "beegfs"},
      {0x65735546, "fuse"},  {0x00C36400, "ceph"},   {0x01021994, "tmpfs"},   {0xEF53, "ext4"},
      {0x58465342, "xfs"},   {0x9123683E, "btrfs"},  {0x794C7630, "overlay"}, {0x2FC12FC1, "zfs"},
      {0xFF534D42, "cifs"},  {0xFE534D42, "smb"},    {0x01021997, "9p"},      {0x20030528, "orangefs"},
      {0x7461636F, "ocfs2"}, {0x01161970, "gfs2"},   {0x5346414F, "afs"},     {0x73717368, "squashfs"},
      {0xAAD7AAEA, "panfs"}, {0x786F4256, "vboxsf"}, {0x858458F6, "ramfs"},
  };
  const auto found = names.find(magic);
  return found == names.end() ? format("0x{:x}", static_cast<unsigned long>(magic)) : found->second;
}

}  // namespace lockstep::doctor
