#include "lockstep/base/files/shared_memory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::base {
namespace {

namespace fs = std::filesystem;

constexpr const char *kClaimPrefix = "lockstep-", *kClaimSuffix = ".shared";

bool is_own_file(const Descriptor& file) {
  struct stat facts {};
  return file && ::fstat(file.number(), &facts) == 0 && S_ISREG(facts.st_mode) &&
         facts.st_uid == ::geteuid() && facts.st_nlink > 0;
}

void remove_unclaimed(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!is_own_file(file) || ::flock(file.number(), LOCK_EX | LOCK_NB) != 0) return;
  // The lock is held until the name is removed, because its creator may be about to claim it. A file without
  // links was removed before the lock, and the name may belong to another file now.
  if (is_own_file(file)) ::unlink(path.c_str());
}

}  // namespace

std::string claimed_name(const std::string& name) {
  return format("{}{}{}", kClaimPrefix, name, kClaimSuffix);
}

bool claim(const Descriptor& file) {
  // a file system without locks has no removal either
  if (::flock(file.number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  return is_own_file(file);
}

void sweep_unclaimed(const std::string& folder) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const auto name = entry.path().filename().string();
    if (!name.starts_with(kClaimPrefix) || !name.ends_with(kClaimSuffix)) continue;
    remove_unclaimed(entry.path());
  }
}

namespace {

constexpr int kNameTries = 16;

std::string fresh_name() {
  std::random_device device;
  return "/" + claimed_name(format("{}-{:08x}{:08x}", ::getpid(), device(), device()));
}

[[noreturn]] void fail(const std::string& what, int code) {
  throw Error(format("cannot create shared memory: {}: {}", what, std::strerror(code)), "/dev/shm",
              "check its free space and permissions: df -h /dev/shm; ls -ld /dev/shm")
      .of(Code::shared_memory);
}

void* map(int file, size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return data == MAP_FAILED ? nullptr : data;
}

}  // namespace

SharedMemory SharedMemory::create(size_t bytes) {
  sweep_unclaimed("/dev/shm");
  for (int i = 0; i < kNameTries; ++i) {
    const std::string name = fresh_name();
    Descriptor file(::shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
    if (!file && errno == EEXIST) continue;
    if (!file) fail("shm_open", errno);
    if (!claim(file)) continue;  // another process removed it
    // without posix_fallocate a full /dev/shm would be a SIGBUS at the first touch
    const int full = ::posix_fallocate(file.number(), 0, static_cast<off_t>(bytes));
    void* data = full == 0 ? map(file.number(), bytes) : nullptr;
    if (data) return {name, data, bytes, std::move(file)};
    ::shm_unlink(name.c_str());
    fail(format("{} bytes", bytes), full != 0 ? full : ENOMEM);
  }
  fail("no free name", EEXIST);
}

std::optional<SharedMemory> SharedMemory::open(const std::string& name) {
  const Descriptor file(::shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0));
  if (!file) return std::nullopt;
  struct stat facts {};
  if (::fstat(file.number(), &facts) != 0 || facts.st_uid != ::geteuid()) return std::nullopt;
  void* data = map(file.number(), static_cast<size_t>(facts.st_size));
  if (!data) return std::nullopt;
  return SharedMemory(name, data, static_cast<size_t>(facts.st_size), Descriptor());
}

SharedMemory::SharedMemory(std::string name, void* data, size_t size, Descriptor claim)
    : name_(std::move(name)), data_(data), size_(size), claim_(std::move(claim)) {}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept {
  *this = std::move(other);
}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this == &other) return *this;
  release();
  name_ = std::move(other.name_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  claim_ = std::move(other.claim_);
  return *this;
}

SharedMemory::~SharedMemory() {
  release();
}

void SharedMemory::release() {
  unlink();
  if (data_) ::munmap(data_, size_);
  data_ = nullptr;
}

void SharedMemory::unlink() {
  if (claim_) ::shm_unlink(name_.c_str());
  claim_.close();
}

}  // namespace lockstep::base
