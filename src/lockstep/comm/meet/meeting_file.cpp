#include "lockstep/comm/meet/meeting_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/write_all.h"

namespace lockstep::comm {
namespace {

namespace fs = std::filesystem;

constexpr time_t kStale = 24 * 3600;  // far beyond any joining: what a killed start has left
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

struct CloseFolder {
  void operator()(DIR* list) const { ::closedir(list); }
};

void sweep(const base::Descriptor& folder) {
  const int copy = ::dup(folder.number());
  const std::unique_ptr<DIR, CloseFolder> list(copy < 0 ? nullptr : ::fdopendir(copy));
  if (!list) return;
  while (const dirent* entry = ::readdir(list.get())) {
    struct stat facts {};
    const bool file = ::fstatat(folder.number(), entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) == 0 &&
                      !S_ISDIR(facts.st_mode);
    if (file && facts.st_mtime + kStale < ::time(nullptr)) ::unlinkat(folder.number(), entry->d_name, 0);
  }
}

base::Descriptor make_folder(const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) refuse_for(folder, errno);
  base::Descriptor opened = open_folder(folder);
  if (opened) sweep(opened);
  return opened;
}

// Calls it until it succeeds: the folder goes when the rank 0 of another job was its last user.
template <class Make>
void retry(const fs::path& path, Make&& make) {
  for (int i = 0; i < kTries; ++i) {
    if (make()) return;
  }
  refuse_meeting(path, "another process keeps deleting the folder");
}

bool write_in(const fs::path& path, const std::string& text) {
  const base::Descriptor folder = make_folder(path.parent_path());
  if (!folder) return false;
  const std::string name = path.filename(), draft = format("{}.{}", name, ::getpid());
  ::unlinkat(folder.number(), draft.c_str(), 0);
  base::Descriptor file(
      ::openat(folder.number(), draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file && errno == ENOENT) return false;
  if (!file) refuse_for(path, errno);
  const bool whole = base::write_all(file.number(), text);
  const int reason = errno;
  const bool closed = file.close();
  if (whole && closed && ::renameat(folder.number(), draft.c_str(), folder.number(), name.c_str()) == 0)
    return true;
  ::unlinkat(folder.number(), draft.c_str(), 0);
  refuse_for(path, whole ? errno : reason);
}

std::string read_in(const base::Descriptor& folder, const std::string& name) {
  const base::Descriptor file(
      ::openat(folder.number(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat facts {};
  if (!file || ::fstat(file.number(), &facts) != 0) return "";
  if (!S_ISREG(facts.st_mode) || facts.st_uid != ::geteuid()) return "";
  std::array<char, 1024> text{};
  const auto size = ::read(file.number(), text.data(), text.size());
  return {text.data(), size > 0 ? static_cast<size_t>(size) : 0};
}

// False where the next start of this job has written in its place.
bool still_says(const std::string& path, const std::string& word) {
  try {
    const auto place = read_meeting_file(path);
    return place && place->word == word;
  } catch (const InputError&) {
    return false;  // a folder that is ours no more
  }
}

base::Descriptor unix_socket() {
  return base::Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Through the open folder: its owner and mode have been checked, and its path may be longer than sun_path.
int at_address(decltype(&::connect) call, const base::Descriptor& socket, const base::Descriptor& folder,
               const fs::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const auto name = format("/proc/self/fd/{}/{}", folder.number(), path.filename().string());
  if (name.size() >= sizeof address.sun_path) return ENAMETOOLONG;
  name.copy(address.sun_path, name.size());
  return call(socket.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

// Nothing where the folder went. What a killed rank 0 left is replaced: nobody answers there.
base::Descriptor listen_in(const fs::path& path) {
  const base::Descriptor folder = make_folder(path.parent_path());
  if (!folder) return base::Descriptor();
  ::flock(folder.number(), LOCK_EX);  // between the check and the bind
  const int answer = at_address(&::connect, unix_socket(), folder, path);
  if (answer == 0 || answer == EAGAIN) {
    throw Error("rank 0 of another job listens here", path.string(),
                "give each job a MASTER_PORT of its own, or leave it to torchrun")
        .of(Code::not_joined);
  }
  ::unlinkat(folder.number(), path.filename().c_str(), 0);
  base::Descriptor socket = unix_socket();
  const int reason = socket ? at_address(&::bind, socket, folder, path) : errno;
  if (reason == ENOENT) return base::Descriptor();
  if (reason != 0) refuse_for(path, reason);
  if (::listen(socket.number(), SOMAXCONN) != 0) refuse_for(path, errno);
  return socket;
}

}  // namespace

MeetingSocket::MeetingSocket(const std::string& path) : path_(path) {
  retry(path_, [this] { return static_cast<bool>(socket_ = listen_in(path_)); });
}

// In this order: once it is closed, the next start may have a socket of the same name.
MeetingSocket::~MeetingSocket() {
  ::unlink(path_.c_str());
  ::rmdir(fs::path(path_).parent_path().c_str());  // stays while another job meets there
}

std::optional<base::Descriptor> call_socket(const std::string& path) {
  if (path.empty()) return std::nullopt;
  const base::Descriptor folder = open_folder(fs::path(path).parent_path());
  if (!folder) return std::nullopt;
  base::Descriptor socket = unix_socket();
  if (!socket || at_address(&::connect, socket, folder, path) != 0) return std::nullopt;
  return socket;
}

MeetingFile::MeetingFile(const std::string& path, const MeetingPlace& place)
    : path_(path), word_(place.word) {
  const std::string text = format("{} {} {} .\n", place.host, place.port, place.word);
  retry(path_, [&] { return write_in(path_, text); });
}

MeetingFile::~MeetingFile() {
  if (still_says(path_, word_)) ::unlink(path_.c_str());
  ::rmdir(fs::path(path_).parent_path().c_str());  // stays while another job meets there
}

std::optional<MeetingPlace> read_meeting_file(const std::string& path) {
  const base::Descriptor folder = open_folder(fs::path(path).parent_path());
  if (!folder) return std::nullopt;
  std::istringstream words(read_in(folder, fs::path(path).filename()));
  MeetingPlace place;
  std::string end;
  if (words >> place.host >> place.port >> place.word >> end && end == ".") return place;
  return std::nullopt;  // not there yet, or no file of ours
}

}  // namespace lockstep::comm
