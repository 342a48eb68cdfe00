#include "lockstep/data/node_share.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>
#include <tuple>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/files/shared_memory.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/data/packed.h"

namespace lockstep {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kLoaded = 0, kNotLoaded = 1;  // what a table begins with
constexpr int kNameTries = 16;                  // a sweep of another job may come between
constexpr std::chrono::milliseconds kSweepTime{1};

using base::FileMap, data::view_of;

constexpr const char* kSharedName = "shared memory of this node";
using Load = std::function<SharedSet(Arena&)>;

/// A folder ran out of room while a set was being laid into it: the next folder may hold it.
struct NoRoom {};

class PrivateArena : public Arena {
 public:
  at::Tensor empty(at::IntArrayRef shape, at::ScalarType type) override {
    return at::empty(shape, at::TensorOptions(type));
  }
};

/// An empty file that the ranks of a node know by its name until all of them have opened it.
struct Offer {
  std::string path;
  base::Descriptor file;
};

/// Tensors in such a file, each at a page's start; a table of them at the end.
class SharedArena : public Arena {
 public:
  explicit SharedArena(base::Descriptor file) : file_(std::move(file)) {}

  at::Tensor empty(at::IntArrayRef shape, at::ScalarType type) override {
    const auto bytes = static_cast<int64_t>(c10::multiply_integers(shape) * c10::elementSize(type));
    const int64_t offset = grow(bytes);
    auto mapping = std::make_shared<FileMap>(file_.number(), offset, std::max<int64_t>(bytes, 1),
                                             PROT_READ | PROT_WRITE, MAP_SHARED, kSharedName);
    parts_.push_back({offset, mapping});
    return view_of(mapping, mapping->data(), shape, type);
  }

  /// Where a tensor lies in the file, copying it in first where it lies elsewhere.
  int64_t place(at::Tensor& tensor) {
    if (tensor.is_contiguous()) {
      for (const auto& part : parts_) {
        const auto* start = static_cast<const char*>(tensor.const_data_ptr());
        if (part.mapping->holds(start)) return part.offset + (start - part.mapping->data());
      }
    }
    auto copy = empty(tensor.sizes(), tensor.scalar_type());
    copy.copy_(tensor);
    tensor = copy;
    return parts_.back().offset;
  }

  /// Ends the file with the table, its length last.
  void finish(const std::string& table) {
    const std::string tail = table + data::Packer().number(table.size()).text();
    const int64_t offset = grow(tail.size());
    if (::ftruncate(file_.number(), offset + tail.size()) != 0 ||
        ::pwrite(file_.number(), tail.data(), tail.size(), offset) != static_cast<ssize_t>(tail.size())) {
      throw NoRoom{};
    }
    for (const auto& part : parts_) part.mapping->make_read_only();
  }

  /// Gives the room back; an empty file is no answer.
  void abandon() { std::ignore = ::ftruncate(file_.number(), 0); }

 private:
  struct Part {
    int64_t offset;
    std::shared_ptr<FileMap> mapping;
  };

  // Room that is really there: a sparse file on a full tmpfs would end in SIGBUS.
  int64_t grow(int64_t bytes) {
    const int64_t offset = end_;
    if (::posix_fallocate(file_.number(), offset, std::max<int64_t>(bytes, 1)) != 0) throw NoRoom{};
    end_ = (offset + bytes + kPage) / kPage * kPage;
    return offset;
  }

  base::Descriptor file_;
  int64_t end_ = 0;
  std::vector<Part> parts_;
};

std::vector<std::string> folders() {
  std::vector<std::string> list{"/dev/shm"};
  if (const char* tmp = std::getenv("TMPDIR"); tmp && *tmp) list.push_back(tmp);
  list.push_back("/tmp");
  return list;
}

std::string path_in(const std::string& folder, const NodeShare& node) {
  std::string name = node.name;
  for (char& c : name) {
    if (c == '/') c = '_';
  }
  return format("{}/{}", folder, base::claimed_name(name));
}

// The name is this job's own: what stands there is somebody's leftover.
std::optional<Offer> make_offer(const std::string& path) {
  for (int tries = 0; tries < kNameTries; ++tries) {
    base::Descriptor file(::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (file && base::claim(file)) return Offer{path, std::move(file)};
    if (!file && errno != EEXIST) return std::nullopt;
    base::remove_unclaimed(path);
    std::this_thread::sleep_for(kSweepTime);
  }
  return std::nullopt;
}

/// One in each folder that takes one: which of them has room for the set is known only later. Their names
/// end with this object.
class Offers {
 public:
  explicit Offers(const NodeShare& node) {
    for (const auto& folder : folders()) {
      base::sweep_unclaimed(folder);
      if (auto offer = make_offer(path_in(folder, node))) list_.push_back(std::move(*offer));
    }
  }
  ~Offers() { withdraw(); }
  Offers(const Offers&) = delete;
  Offers& operator=(const Offers&) = delete;

  /// The names go, the files stay.
  std::vector<base::Descriptor> withdraw() {
    std::vector<base::Descriptor> files;
    for (auto& offer : list_) {
      ::unlink(offer.path.c_str());
      files.push_back(std::move(offer.file));
    }
    list_.clear();
    return files;
  }

 private:
  std::vector<Offer> list_;
};

std::string table_of(SharedArena& arena, SharedSet& set) {
  data::Packer table;
  table.number(kLoaded).string(set.text).number(set.tensors.size());
  for (auto& tensor : set.tensors) {
    table.number(arena.place(tensor)).number(static_cast<int64_t>(tensor.scalar_type())).number(tensor.dim());
    for (int64_t size : tensor.sizes()) table.number(size);
  }
  return table.text();
}

std::string table_of(const std::exception& error) {
  return data::Packer().number(kNotLoaded).string(base::pack_error(error)).text();
}

/// What the first rank did: its result, or its error (which is shared too).
struct Loaded {
  SharedSet set;
  std::exception_ptr error;
};

Loaded load_into(SharedArena& arena, const Load& load) {
  Loaded loaded;
  std::string table;
  try {
    loaded.set = load(arena);
    table = table_of(arena, loaded.set);
  } catch (const std::exception& error) {
    loaded.error = std::current_exception();
    table = table_of(error);
  }
  arena.finish(table);
  return loaded;
}

Loaded load_where_room_is(std::vector<base::Descriptor> files, const Load& load) {
  for (auto& file : files) {
    SharedArena arena(std::move(file));
    try {
      return load_into(arena, load);
    } catch (const NoRoom&) {
      arena.abandon();
    }
  }
  throw Error("no folder has room to share the data set between the ranks of this node",
              "tried " + base::join(folders(), ", "),
              "free some memory in /dev/shm, or set TMPDIR to a folder with room");
}

Loaded caught(const std::function<Loaded()>& work) {
  try {
    return work();
  } catch (...) {
    return {{}, std::current_exception()};
  }
}

SharedSet result_of(Loaded loaded) {
  if (loaded.error) std::rethrow_exception(loaded.error);
  return std::move(loaded.set);
}

// Three barriers on every rank of the job, however its nodes are filled: the files are there, all of a node
// have opened them, the set is in. Before the third a file has no name any more, and until then no data: a
// kill leaves nothing, or an empty file that the next start sweeps.
SharedSet share_as_first(const NodeShare& node, const Load& load) {
  Offers offers(node);
  node.barrier();
  node.barrier();
  auto loaded = caught([&] { return load_where_room_is(offers.withdraw(), load); });
  node.await_load();
  return result_of(std::move(loaded));
}

SharedSet load_alone(const NodeShare& node, const Load& load) {
  node.barrier();
  node.barrier();
  auto loaded = caught([&] {
    PrivateArena arena;
    return Loaded{load(arena), nullptr};
  });
  node.await_load();
  return result_of(std::move(loaded));
}

SharedSet read_mapped(const std::shared_ptr<FileMap>& mapping, int64_t bytes) {
  const char* end = mapping->data() + bytes - 8;
  const int64_t length = data::Unpacker(end, 8).number();
  data::Unpacker table(end - length, length);
  if (table.number() == kNotLoaded) base::throw_packed_error(table.string());
  SharedSet set;
  set.text = table.string();
  set.tensors.resize(table.number());
  for (auto& tensor : set.tensors) {
    const int64_t offset = table.number();
    const auto type = static_cast<at::ScalarType>(table.number());
    std::vector<int64_t> shape(table.number());
    for (auto& size : shape) size = table.number();
    tensor = view_of(mapping, mapping->data() + offset, shape, type);
  }
  return set;
}

std::vector<base::Descriptor> open_offers(const NodeShare& node) {
  std::vector<base::Descriptor> files;
  for (const auto& folder : folders()) {
    base::Descriptor file(
        ::open(path_in(folder, node).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat facts {};
    if (file && ::fstat(file.number(), &facts) == 0 && facts.st_uid == ::geteuid())
      files.push_back(std::move(file));
  }
  return files;
}

SharedSet map_filled(const std::vector<base::Descriptor>& files) {
  for (const auto& file : files) {
    struct stat facts {};
    if (::fstat(file.number(), &facts) != 0 || facts.st_size == 0) continue;
    return read_mapped(
        std::make_shared<FileMap>(file.number(), 0, facts.st_size, PROT_READ, MAP_SHARED, kSharedName),
        facts.st_size);
  }
  throw Error("the first rank of this node could not share the data set", "", "its own error says why");
}

SharedSet share_as_other(const NodeShare& node) {
  node.barrier();
  const auto files = open_offers(node);
  node.barrier();
  node.await_load();
  return map_filled(files);
}

}  // namespace

SharedSet share_on_node(const NodeShare& node, const Load& load) {
  if (!node.barrier) {
    PrivateArena arena;
    return load(arena);
  }
  if (node.local_world == 1) return load_alone(node, load);
  return node.local_rank == 0 ? share_as_first(node, load) : share_as_other(node);
}

}  // namespace lockstep
