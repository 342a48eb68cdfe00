#include "checkpoint/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/format.h"

namespace lockstep {

namespace {

constexpr const char* kSuffix = ".partial";

std::string reason() {
  return std::strerror(errno);
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  /// Some file systems (NFS) report a full disk only here.
  bool close() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

void write_all(int fd, const void* data, size_t size, const std::string& path) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const auto written = ::write(fd, bytes, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0)
      throw Error("cannot write the checkpoint: " + reason(), path, "make room, or change run.dir");
    bytes += written;
    size -= static_cast<size_t>(written);
  }
}

void write_and_sync(const std::string& path, const std::function<void(const ByteSink&)>& write) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0)
    throw Error("cannot write the checkpoint: " + reason(), path, "is the folder writable?");
  write([&](const void* data, size_t size) { write_all(file.get(), data, size, path); });
  if (::fsync(file.get()) != 0 || !file.close()) {
    throw Error("cannot write the checkpoint: " + reason(), path, "make room, or change run.dir");
  }
}

/// Makes the rename last. A file system that can't sync folders is no reason to fail.
void sync_folder(const std::filesystem::path& folder) {
  const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() >= 0) ::fsync(descriptor.get());
}

}  // namespace

bool is_leftover(const std::string& filename) {
  return filename.starts_with('.') && filename.ends_with(kSuffix);
}

void write_whole(const std::string& path, const std::function<void(const ByteSink&)>& write) {
  const std::filesystem::path target(path);
  const auto folder = target.has_parent_path() ? target.parent_path() : std::filesystem::path(".");
  const auto temporary =
      (folder / format(".{}.{}{}", target.filename().string(), ::getpid(), kSuffix)).string();
  try {
    write_and_sync(temporary, write);
    if (::rename(temporary.c_str(), path.c_str()) != 0) {
      throw Error("cannot put the checkpoint in its place: " + reason(), path);
    }
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(folder);
}

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts {};
  if (file.get() < 0 || ::fstat(file.get(), &facts) != 0)
    throw InputError("cannot read the file: " + reason(), path);
  if (!S_ISREG(facts.st_mode))
    throw InputError("this is not a file", path, "name a .pt or .safetensors file");
  size_ = static_cast<size_t>(facts.st_size);
  if (size_ == 0) throw InputError("the file is empty", path);
  void* map = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (map == MAP_FAILED) throw InputError("cannot read the file: " + reason(), path);
  data_ = static_cast<const uint8_t*>(map);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<uint8_t*>(data_), size_);
}

}  // namespace lockstep
