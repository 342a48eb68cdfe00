#include "lockstep/comm/meet/meeting_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/comm/meet/shared_store.h"

namespace lockstep::comm {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLocalBytes = size_t{256} << 20;  // of addresses; the disk gives what is used
constexpr int kTries = 16;

[[noreturn]] void refuse_meeting(const fs::path& path, const std::string& what) {
  throw InputError("the ranks cannot meet in this folder: " + what, path.string(),
                   "set LOCKSTEP_RENDEZVOUS_DIR to a folder of your own that all ranks see");
}

[[noreturn]] void refuse_for(const fs::path& path, int reason) {
  refuse_meeting(path, std::strerror(reason));
}

// Opened again each time: over NFS that is what shows a new file.
base::Descriptor open_folder(const fs::path& folder) {
  base::Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!opened) {
    if (errno == ENOENT) return opened;
    refuse_for(folder, errno);
  }
  struct stat facts {};
  if (::fstat(opened.number(), &facts) != 0) refuse_for(folder, errno);
  if (facts.st_uid != ::geteuid()) refuse_meeting(folder, "the folder belongs to another user");
  if ((facts.st_mode & 077) != 0)
    refuse_meeting(folder, "others than you may use the folder (chmod 700 ends that)");
  return opened;
}

std::string draft_of(const fs::path& path) {
  return format("{}.{}", path.string(), ::getpid());
}

// A new file beside `path`, after what is there has been checked; again where another job, as the folder's
// last user, has just removed it.
template <class Check>
base::Descriptor make_draft(const fs::path& path, Check&& check) {
  const fs::path parent = path.parent_path(), draft = draft_of(path);
  for (int i = 0; i < kTries; ++i) {
    if (::mkdir(parent.c_str(), 0700) != 0 && errno != EEXIST) refuse_for(parent, errno);
    base::Descriptor folder = open_folder(parent);
    if (!folder) continue;
    const auto name = draft.filename();
    ::unlinkat(folder.number(), name.c_str(), 0);
    base::Descriptor file(
        ::openat(folder.number(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (file) {
      check(std::move(folder));
      return file;
    }
    if (errno != ENOENT) refuse_for(path, errno);
  }
  refuse_meeting(path, "another process keeps deleting the folder");
}

// Whole and locked, if it is, before anybody sees it.
void publish(bool whole, const fs::path& path) {
  const auto draft = draft_of(path);
  if (whole && ::rename(draft.c_str(), path.c_str()) == 0) return;
  const int reason = errno;
  ::unlink(draft.c_str());
  refuse_for(path, reason);
}

// A regular file of this user, or none.
base::Descriptor open_own(const base::Descriptor& folder, const std::string& name, int flags) {
  base::Descriptor file(::openat(folder.number(), name.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat facts {};
  const bool own =
      file && ::fstat(file.number(), &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == ::geteuid();
  return own ? std::move(file) : base::Descriptor();
}

// What a killed rank 0 has left is locked by nobody.
bool is_held(const base::Descriptor& file) {
  return file && ::flock(file.number(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

StoreMemory map(base::Descriptor file, const fs::path& path) {
  void* data = ::mmap(nullptr, kLocalBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  if (data == MAP_FAILED) refuse_for(path, errno);
  return {{data, [](void* mapped) { ::munmap(mapped, kLocalBytes); }},
          kLocalBytes,
          std::make_shared<base::Descriptor>(std::move(file))};
}

void remove(const std::string& path) {
  ::unlink(path.c_str());
  ::rmdir(fs::path(path).parent_path().c_str());  // stays while another job meets there
}

}  // namespace

LocalMeeting::LocalMeeting(const std::string& path) : path_(path) {
  base::Descriptor locked;  // the folder, until our file is there
  base::Descriptor file = make_draft(path, [&](base::Descriptor folder) {
    locked = std::move(folder);
    ::flock(locked.number(), LOCK_EX);
    if (!is_held(open_own(locked, fs::path(path).filename(), O_RDONLY))) return;
    ::unlink(draft_of(path).c_str());
    throw Error("rank 0 of another job waits for its ranks here", path,
                "give each job a MASTER_PORT of its own, or leave it to torchrun")
        .of(Code::not_joined);
  });
  const bool whole =
      ::ftruncate(file.number(), kLocalBytes) == 0 && ::flock(file.number(), LOCK_EX | LOCK_NB) == 0;
  if (whole) store_ = SharedStore::create(map(std::move(file), path));
  publish(whole, path);
}

LocalMeeting::~LocalMeeting() {
  remove(path_);
}

StorePtr find_local_store(const std::string& path) {
  const base::Descriptor folder = open_folder(fs::path(path).parent_path());
  if (!folder) return nullptr;
  base::Descriptor file = open_own(folder, fs::path(path).filename(), O_RDWR);
  if (!is_held(file)) return nullptr;
  return SharedStore::join(map(std::move(file), path));
}

MeetingFile::MeetingFile(const std::string& path, const MeetingPlace& place)
    : path_(path), word_(place.word) {
  base::Descriptor file = make_draft(path, [](const base::Descriptor&) {});
  const auto text = format("{} {} {} .\n", place.host, place.port, place.word);
  publish(base::write_all(file.number(), text) && file.close(), path);
}

// The next start of this job may have written in its place.
MeetingFile::~MeetingFile() {
  try {
    const auto place = read_meeting_file(path_);
    if (place && place->word == word_) remove(path_);
  } catch (const InputError&) {  // the folder is ours no more
  }
}

std::optional<MeetingPlace> read_meeting_file(const std::string& path) {
  const base::Descriptor folder = open_folder(fs::path(path).parent_path());
  if (!folder) return std::nullopt;
  const base::Descriptor file = open_own(folder, fs::path(path).filename(), O_RDONLY);
  std::array<char, 1024> text{};
  const auto size = file ? ::read(file.number(), text.data(), text.size()) : 0;
  std::istringstream words(std::string(text.data(), size > 0 ? static_cast<size_t>(size) : 0));
  MeetingPlace place;
  std::string end;
  if (words >> place.host >> place.port >> place.word >> end && end == ".") return place;
  return std::nullopt;  // not there yet, or no file of ours
}

}  // namespace lockstep::comm
