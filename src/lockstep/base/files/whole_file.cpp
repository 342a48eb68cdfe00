#include "lockstep/base/files/whole_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::base {
namespace {

namespace fs = std::filesystem;

fs::path without_slash(const std::string& path) {
  const fs::path plain(path);
  return plain.has_filename() ? plain : plain.parent_path();
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// Removes its folder, unless that was renamed.
struct FolderRemover {
  fs::path path;
  ~FolderRemover() {
    std::error_code ignored;
    if (!path.empty()) fs::remove_all(path, ignored);
  }
};

}  // namespace

void check_new_folder(const std::string& wanted, const std::string& hint) {
  const auto path = without_slash(wanted);
  std::error_code failed;
  const auto there = fs::symlink_status(path, failed);
  if (fs::exists(there) && !fs::is_directory(there))
    throw InputError("the output is not a folder", wanted, hint);
  if (fs::is_directory(there) && !fs::is_empty(path, failed))
    throw InputError("the folder exists and is not empty", wanted, hint);
  if (!fs::is_directory(folder_of(path), failed))
    throw InputError("the parent folder does not exist", wanted, hint);
  if (::access(folder_of(path).c_str(), W_OK) != 0)
    throw InputError(std::string("cannot write there: ") + std::strerror(errno), wanted, hint);
}

void write_whole_folder(const std::string& wanted, const std::string& hint,
                        const std::function<void(const std::string& folder)>& write) {
  check_new_folder(wanted, hint);
  const auto path = without_slash(wanted);
  std::string name = (folder_of(path) / ("." + path.filename().string() + ".partial.XXXXXX")).string();
  if (!::mkdtemp(name.data()))
    throw InputError(std::string("cannot write there: ") + std::strerror(errno), wanted, hint);
  FolderRemover made{name};
  write(name);
  if (::chmod(name.c_str(), 0755) != 0 || ::rename(name.c_str(), path.c_str()) != 0)
    throw Error(std::string("cannot create the folder: ") + std::strerror(errno), wanted, hint);
  made.path.clear();
}

TemporaryFolder::TemporaryFolder() {
  std::error_code failed;
  path_ = std::filesystem::temp_directory_path(failed) / "lockstep-XXXXXX";
  if (failed || !::mkdtemp(path_.data()))
    throw Error("cannot create a temporary folder", path_,
                "free disk space there, or set TMPDIR to another folder");
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code none;
  std::filesystem::remove_all(path_, none);
}

namespace {

constexpr const char* kPartialSuffix = ".partial";

[[noreturn]] void cannot_write(const std::string& path) {
  throw Error(format("cannot write: {}", std::strerror(errno)), path,
              "free disk space, or set run.dir to a folder that can be written");
}

void write_or_throw(const Descriptor& file, std::string_view bytes, const std::string& path) {
  if (!write_all(file.number(), bytes)) cannot_write(path);
}

// A writer holds a lock on its file. Locks may not reach other hosts, but such writers change files often.
bool is_dead(const std::filesystem::path& partial) {
  constexpr time_t kYoung = 600;
  struct stat facts {};
  const Descriptor file(::open(partial.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return file && ::fstat(file.number(), &facts) == 0 && S_ISREG(facts.st_mode) &&
         ::time(nullptr) - facts.st_mtime > kYoung && ::flock(file.number(), LOCK_EX | LOCK_NB) == 0;
}

bool is_our_output(const struct stat& facts, int number) {
  struct stat own {};
  return ::fstat(number, &own) == 0 && own.st_dev == facts.st_dev && own.st_ino == facts.st_ino;
}

/// Waits for no reader: a pipe without one is an error.
void write_through(const std::string& path, const std::string& text) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file) cannot_write(path);
  ::fcntl(file.number(), F_SETFL, ::fcntl(file.number(), F_GETFL) & ~O_NONBLOCK);
  write_or_throw(file, text, path);
}

// Another user could use a link to overwrite files of this user.
void check_link(const std::string& path) {
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) != 0 || !S_ISLNK(facts.st_mode)) return;
  if (facts.st_uid == ::geteuid() || facts.st_uid == 0) return;
  throw InputError("the output is a link that belongs to another user", path,
                   "remove it, or name another file");
}

std::filesystem::path resolve_links(std::filesystem::path path) {
  constexpr int kMostLinks = 40;  // as Linux has it
  std::error_code none;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(path, none); ++i) {
    check_link(path.string());
    path = path.parent_path() / std::filesystem::read_symlink(path, none);  // an absolute one replaces all
  }
  return path;
}

void write_by_kind(const std::string& path, const std::string& text) {
  struct stat facts {};
  const bool there = ::stat(path.c_str(), &facts) == 0;
  for (const int number : {STDOUT_FILENO, STDERR_FILENO}) {
    if (!there || !is_our_output(facts, number)) continue;
    Descriptor own(::dup(number));
    return write_or_throw(own, text, path);
  }
  const auto target = resolve_links(path).string();
  if (there && !S_ISREG(facts.st_mode)) return write_through(path, text);
  replace_file(target, text);
  if (there) ::chmod(target.c_str(), facts.st_mode & 07777);
}

// Makes the rename durable. Some file systems cannot sync folders, which is not an error.
void sync_folder(const std::filesystem::path& folder) {
  const Descriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file) ::fsync(file.number());
}

// Permissions are not enough: root cannot write to a read-only mount, to some NFS servers or to /sys.
bool takes_files(const std::string& path) {
  std::string temporary;
  const auto file = make_partial(path, temporary);
  if (file) ::unlink(temporary.c_str());
  return static_cast<bool>(file);
}

}  // namespace

void write_output(const std::string& path, const std::string& text, const std::string& hint) {
  try {
    write_by_kind(path, text);
  } catch (const InputError&) {
    throw;
  } catch (const Error& error) {
    throw Error(error.what(), path, hint);
  }
}

void check_output(const std::string& path, const std::string& hint) {
  struct stat facts {};
  const bool there = ::stat(path.c_str(), &facts) == 0;
  if (there && S_ISDIR(facts.st_mode)) throw InputError("the output is a folder", path, hint);
  if (there && (is_our_output(facts, STDOUT_FILENO) || is_our_output(facts, STDERR_FILENO))) return;
  const auto target = std::filesystem::absolute(resolve_links(path));
  const auto folder = target.parent_path();
  const bool replaced = !there || S_ISREG(facts.st_mode);
  std::error_code none;
  if (replaced && !std::filesystem::is_directory(folder, none))
    throw InputError("the folder does not exist", folder.string(), "create it, or " + hint);
  if (replaced ? takes_files(target.string()) : ::access(path.c_str(), W_OK) == 0) return;
  throw InputError(format("cannot write: {}", std::strerror(errno)), path, hint);
}

Descriptor make_partial(const std::string& path, std::string& temporary, mode_t mode) {
  const std::filesystem::path target(path);
  // processes in containers and on other hosts may have the same number
  const auto name = format(".{}.{}-{:08x}{}", target.filename().string(), ::getpid(), std::random_device()(),
                           kPartialSuffix);
  temporary = (folder_of(target) / name).string();
  Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (file) ::flock(file.number(), LOCK_EX | LOCK_NB);  // seen by is_dead()
  return file;
}

void remove_stale_partials(const std::string& path) {
  const std::filesystem::path target(path);
  const auto folder = folder_of(target);
  const auto beginning = "." + target.filename().string() + ".";
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(folder, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const auto name = entry->path().filename().string();
    if (name.starts_with(beginning) && is_leftover(name) && is_dead(entry->path()))
      ::unlink(entry->path().c_str());
  }
}

bool is_leftover(const std::string& filename) {
  return filename.starts_with('.') && filename.ends_with(kPartialSuffix);
}

void remove_leftovers(const std::string& folder) {
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(folder, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    if (is_leftover(entry->path().filename().string())) ::unlink(entry->path().c_str());
  }
}

void write_whole(const std::string& path, const std::function<void(const ByteSink&)>& write,
                 const std::function<void()>& ready, mode_t mode) {
  std::string temporary;
  Descriptor file = make_partial(path, temporary, mode);
  if (!file) cannot_write(temporary);
  try {
    write([&](const void* data, size_t size) {
      write_or_throw(file, {static_cast<const char*>(data), size}, temporary);
    });
    if (::fsync(file.number()) != 0 || !file.close()) cannot_write(temporary);
    if (ready) ready();
    if (::rename(temporary.c_str(), path.c_str()) != 0) cannot_write(path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(folder_of(path));
}

void replace_file(const std::string& path, const std::string& text) {
  write_whole(path, [&](const ByteSink& sink) { sink(text.data(), text.size()); });
}

}  // namespace lockstep::base
