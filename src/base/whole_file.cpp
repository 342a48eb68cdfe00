#include "base/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/format.h"

namespace lockstep {
namespace {

constexpr const char* kSuffix = ".partial";

[[noreturn]] void fail(const std::string& path) {
  throw Error(format("cannot write: {}", std::strerror(errno)), path,
              "make room, or set run.dir to a folder that can be written");
}

void write_all(const Descriptor& file, const void* data, size_t size, const std::string& path) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const auto written = ::write(file.number(), bytes, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path);
    bytes += written;
    size -= static_cast<size_t>(written);
  }
}

void write_and_sync(const std::string& path, const std::function<void(const ByteSink&)>& write) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file) fail(path);
  write([&](const void* data, size_t size) { write_all(file, data, size, path); });
  if (::fsync(file.number()) != 0 || !file.close()) fail(path);
}

// Makes the rename last. A file system that can't sync folders is no reason to fail.
void sync_folder(const std::filesystem::path& folder) {
  const Descriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file) ::fsync(file.number());
}

}  // namespace

bool is_leftover(const std::string& filename) {
  return filename.starts_with('.') && filename.ends_with(kSuffix);
}

void remove_leftovers(const std::string& folder) {
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(folder, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    if (is_leftover(entry->path().filename().string())) ::unlink(entry->path().c_str());
  }
}

void write_whole(const std::string& path, const std::function<void(const ByteSink&)>& write,
                 const std::function<void()>& ready) {
  const std::filesystem::path target(path);
  const auto folder = target.has_parent_path() ? target.parent_path() : std::filesystem::path(".");
  const auto temporary =
      (folder / format(".{}.{}{}", target.filename().string(), ::getpid(), kSuffix)).string();
  try {
    write_and_sync(temporary, write);
    if (ready) ready();
    if (::rename(temporary.c_str(), path.c_str()) != 0) fail(path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(folder);
}

void replace_file(const std::string& path, const std::string& text) {
  write_whole(path, [&](const ByteSink& sink) { sink(text.data(), text.size()); });
}

}  // namespace lockstep
