#include "lockstep/comm/rendezvous/private_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/launch/variables.h"

namespace lockstep::comm {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StoreLocation, host, port, token)

namespace {

namespace fs = std::filesystem;

constexpr int kTries = 16;

[[noreturn]] void refuse_file(const fs::path& path, const std::string& what) {
  throw InputError("the ranks cannot use this folder for the rendezvous: " + what, path.string(),
                   "set LOCKSTEP_RENDEZVOUS_DIR to a folder that you own and all ranks see");
}

[[noreturn]] void refuse_for(const fs::path& path, int reason) {
  refuse_file(path, std::strerror(reason));
}

// Opened again each time: only this shows a new file over NFS.
base::Descriptor open_folder(const fs::path& folder) {
  base::Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!opened) {
    if (errno == ENOENT) return opened;
    refuse_for(folder, errno);
  }
  struct stat facts {};
  if (::fstat(opened.number(), &facts) != 0) refuse_for(folder, errno);
  if (facts.st_uid != ::geteuid()) refuse_file(folder, "the folder belongs to another user");
  if ((facts.st_mode & 077) != 0) refuse_file(folder, "other users can use the folder (run chmod 700)");
  return opened;
}

std::string draft_of(const fs::path& path) {
  return format("{}.{}", path.string(), ::getpid());
}

struct Draft {
  base::Descriptor folder, file;
};

// A new file beside `path`. Tries again if another job, the last user of the folder, has just removed it.
Draft make_draft(const fs::path& path) {
  const fs::path parent = path.parent_path(), name = fs::path(draft_of(path)).filename();
  for (int i = 0; i < kTries; ++i) {
    if (::mkdir(parent.c_str(), 0700) != 0 && errno != EEXIST) refuse_for(parent, errno);
    base::Descriptor folder = open_folder(parent);
    if (!folder) continue;
    ::unlinkat(folder.number(), name.c_str(), 0);
    base::Descriptor file(
        ::openat(folder.number(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (file) return {std::move(folder), std::move(file)};
    if (errno != ENOENT) refuse_for(path, errno);
  }
  refuse_file(path, "another process keeps deleting the folder");
}

// A regular file of this user, or nothing.
base::Descriptor open_own(const base::Descriptor& folder, const std::string& name) {
  if (!folder) return base::Descriptor();
  base::Descriptor file(
      ::openat(folder.number(), name.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat facts {};
  const bool own =
      file && ::fstat(file.number(), &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == ::geteuid();
  return own ? std::move(file) : base::Descriptor();
}

base::Descriptor open_own(const fs::path& path) {
  return open_own(open_folder(path.parent_path()), path.filename());
}

// A file that a killed rank 0 left is not locked.
bool is_held(const base::Descriptor& file) {
  return file && ::flock(file.number(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

bool is_same_file(const base::Descriptor& file, const fs::path& path) {
  struct stat own {
  }, there{};
  return ::fstat(file.number(), &own) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

}  // namespace

std::string private_folder(const std::string& parent) {
  return format("{}/lockstep-{}/", parent, ::geteuid());
}

std::string private_path(const launch::Environment& environment, const std::string& name) {
  std::string parent = "/tmp";
  for (const char* variable : {"TMPDIR", "LOCKSTEP_RENDEZVOUS_DIR"})
    if (const auto folder = launch::text_of(environment, variable); !folder.empty()) parent = folder;
  return private_folder(parent) + name + ".store";
}

PrivateFile::PrivateFile(const std::string& path, bool locked, const Fill& fill) : path_(path) {
  Draft draft = make_draft(path);
  file_ = std::move(draft.file);
  if (locked) {
    ::flock(draft.folder.number(), LOCK_EX);  // until our file is there
    if (is_held(open_own(draft.folder, fs::path(path).filename()))) {
      ::unlink(draft_of(path).c_str());
      throw Error("rank 0 of another job uses this file", path,
                  "set a different MASTER_PORT for each job, or let torchrun choose it")
          .of(Code::not_joined);
    }
  }
  const bool complete = fill(file_) && (!locked || ::flock(file_.number(), LOCK_EX | LOCK_NB) == 0);
  if (complete && ::rename(draft_of(path).c_str(), path.c_str()) == 0) return;
  const int reason = errno;
  ::unlink(draft_of(path).c_str());
  refuse_for(path, reason);
}

// Another start of this job may have replaced the file.
PrivateFile::~PrivateFile() {
  if (is_same_file(file_, path_)) ::unlink(path_.c_str());
  ::rmdir(fs::path(path_).parent_path().c_str());  // fails while another job uses it
}

LocalStore::LocalStore(const std::string& path)
    : file_(path, true, [this](const base::Descriptor& file) {
        base::Descriptor own(::fcntl(file.number(), F_DUPFD_CLOEXEC, 0));
        const bool opened = static_cast<bool>(own);
        store_ = shared_store(std::move(own));
        return opened;
      }) {}

StorePtr find_local_store(const std::string& path) {
  base::Descriptor file = open_own(path);
  return is_held(file) ? shared_store(std::move(file)) : nullptr;
}

PrivateFile publish(const std::string& path, const StoreLocation& place) {
  return PrivateFile(path, false, [&](const base::Descriptor& file) {
    return base::write_all(file.number(), base::as_line(nlohmann::json(place))) &&
           ::fsync(file.number()) == 0;
  });
}

std::optional<StoreLocation> find_store_location(const std::string& path) {
  const base::Descriptor file = open_own(path);
  std::array<char, 1024> text{};
  const auto size = file ? ::read(file.number(), text.data(), text.size()) : 0;
  try {
    return base::parse_json(std::string_view(text.data(), size > 0 ? static_cast<size_t>(size) : 0))
        .get<StoreLocation>();
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;  // not there yet, or another file
  }
}

}  // namespace lockstep::comm
