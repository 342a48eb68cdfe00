#include "lockstep/train/share_tree.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/checkpoint/pt.h"

namespace lockstep::train {
namespace {

std::string to_bytes(const Tree& tree) {
  std::string bytes;
  write_pt([&](const void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); }, tree);
  return bytes;
}

[[noreturn]] void no_memory() {
  throw Error(std::string("no memory for the checkpoint: ") + std::strerror(errno), "",
              "ask for more memory a node, or start fewer ranks on it");
}

// read_pt wants a path: a file that lives in memory alone has one.
Tree from_bytes(const std::string& bytes) {
  const base::Descriptor file(::memfd_create("checkpoint", MFD_CLOEXEC));
  if (!file || ::ftruncate(file.number(), static_cast<off_t>(bytes.size())) != 0) {
    no_memory();
  }
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::write(file.number(), bytes.data() + done, bytes.size() - done);
    if (n <= 0) no_memory();
    done += static_cast<size_t>(n);
  }
  return read_pt(format("/proc/self/fd/{}", file.number()));
}

}  // namespace

Tree share_tree(const Team& team, const std::function<Tree()>& read) {
  if (team.world() == 1) return read();
  Tree own;
  const auto bytes = team.from_first([&] {
    own = read();
    return to_bytes(own);
  });
  return team.first() ? own : from_bytes(bytes);
}

}  // namespace lockstep::train
