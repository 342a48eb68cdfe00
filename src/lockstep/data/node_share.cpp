#include "lockstep/data/node_share.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <sstream>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"

namespace lockstep {
namespace {

using Map = std::shared_ptr<base::FileMap>;

constexpr const char* kWhere = "the memory that the ranks of this node share";

at::Tensor view_of(const Map& map, int64_t place, at::IntArrayRef shape, at::ScalarType type) {
  return at::from_blob(
      map->data() + place, shape, [map](void*) {}, at::TensorOptions(type));
}

struct stat facts_of(const base::Descriptor& file) {
  struct stat facts {};
  ::fstat(file.number(), &facts);
  return facts;
}

}  // namespace

/// An anonymous file in memory; each tensor begins on a page of its own.
struct Arena::File {
  struct Part {
    int64_t offset;
    Map map;
  };

  File() : file(::memfd_create("lockstep-data", MFD_CLOEXEC)) {
    if (!file)
      throw Error(format("the kernel makes no file in memory: {}", std::strerror(errno)), kWhere,
                  "start one rank a node, or ask the administrator to allow memfd_create");
  }

  at::Tensor empty(at::IntArrayRef shape, at::ScalarType type) {
    const auto bytes = static_cast<int64_t>(c10::multiply_integers(shape) * c10::elementSize(type));
    const auto mapped = std::max<int64_t>(bytes, 1);
    // memory that is really there: a write to a page that cannot be had would be a SIGBUS
    if (const int failed = ::posix_fallocate(file.number(), end, mapped))
      throw Error(format("no memory for {} bytes of the data set: {}", bytes, std::strerror(failed)), kWhere,
                  "ask for more memory a node");
    const auto map = std::make_shared<base::FileMap>(file.number(), end, static_cast<size_t>(mapped),
                                                     PROT_READ | PROT_WRITE, MAP_SHARED, kWhere);
    parts.push_back({end, map});
    const int64_t page = ::sysconf(_SC_PAGESIZE);
    end += (mapped + page - 1) / page * page;
    return view_of(map, 0, shape, type);
  }

  /// Where the tensor's data lies in the file. A tensor from elsewhere is copied into it first.
  int64_t place(at::Tensor& tensor) {
    const auto* data = static_cast<const char*>(tensor.const_data_ptr());
    for (const auto& [offset, map] : parts)
      if (tensor.is_contiguous() && map->holds(data)) return offset + (data - map->data());
    tensor = empty(tensor.sizes(), tensor.scalar_type()).copy_(tensor);
    return parts.back().offset;
  }

  base::Descriptor file;
  int64_t end = 0;
  std::vector<Part> parts;
};

Arena::Arena() = default;
Arena::~Arena() = default;

at::Tensor Arena::empty(at::IntArrayRef shape, at::ScalarType type) {
  return file_ ? file_->empty(shape, type) : at::empty(shape, at::TensorOptions(type));
}

/// One call of share_on_node().
class NodeLoad {
 public:
  explicit NodeLoad(const NodeShare& node) : node_(node) {
    if (loads() && node.local_world > 1) arena_.file_ = std::make_unique<Arena::File>();
  }

  SharedSet run(const std::function<SharedSet(Arena&)>& load) {
    const auto loaded = exchange([&] {
      if (!loads()) return std::string();
      set_ = load(arena_);
      return arena_.file_ ? offer() : std::string();
    });
    // the file stays open until the others have mapped it
    exchange([&] {
      if (!loads() && !map(loaded)) {
        log::warning(
            "the memory of the rank that loaded the data set cannot be opened: this rank loads it, too");
        set_ = load(arena_);
      }
      return std::string();
    });
    if (arena_.file_)
      for (const auto& part : arena_.file_->parts) part.map->make_read_only();
    return std::move(set_);
  }

 private:
  bool loads() const { return node_.local_rank == 0; }

  /// What each rank's work gave; throws the error of the first rank that had one, on every rank.
  std::vector<std::string> exchange(const std::function<std::string()>& work) {
    std::exception_ptr own;
    auto texts = node_.exchange(base::pack_outcome([&] {
      try {
        return work();
      } catch (...) {
        own = std::current_exception();
        throw;
      }
    }));
    if (own) std::rethrow_exception(own);
    for (auto& text : texts) text = base::unpack_outcome(text);
    return texts;
  }

  // node, file, inode, bytes, the set's text, and the place, type and shape of each tensor
  std::string offer() {
    std::vector<std::string> tensors;
    for (auto& tensor : set_.tensors) {
      auto text = format("{} {}", arena_.file_->place(tensor), static_cast<int>(tensor.scalar_type()));
      for (const int64_t size : tensor.sizes()) text += format(" {}", size);
      tensors.push_back(text);
    }
    const auto& file = arena_.file_->file;
    const auto facts = facts_of(file);
    return base::pack_texts({format("{}", node_.node_rank),
                             format("/proc/{}/fd/{}", ::getpid(), file.number()), format("{}", facts.st_ino),
                             format("{}", facts.st_size), set_.text, base::pack_texts(tensors)});
  }

  bool map(const std::vector<std::string>& offers) {
    for (const auto& offer : offers) {
      const auto texts = base::unpack_texts(offer);
      if (texts.size() == 6 && texts[0] == format("{}", node_.node_rank)) return map_offer(texts);
    }
    return false;
  }

  /// False where the ranks do not see each other's processes, as in a PID namespace each.
  bool map_offer(const std::vector<std::string>& texts) {
    const base::Descriptor file(::open(texts[1].c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    const auto bytes = std::stoll(texts[3]);
    if (!file || facts_of(file).st_size != bytes || format("{}", facts_of(file).st_ino) != texts[2])
      return false;
    set_.text = texts[4];
    if (bytes == 0) return true;  // no tensors
    const auto map = std::make_shared<base::FileMap>(file.number(), 0, static_cast<size_t>(bytes), PROT_READ,
                                                     MAP_SHARED, kWhere);
    for (const auto& text : base::unpack_texts(texts[5])) {
      std::istringstream numbers(text);
      int64_t place = 0, size = 0;
      int type = 0;
      numbers >> place >> type;
      std::vector<int64_t> shape;
      while (numbers >> size) shape.push_back(size);
      set_.tensors.push_back(view_of(map, place, shape, static_cast<at::ScalarType>(type)));
    }
    return true;
  }

  const NodeShare& node_;
  Arena arena_;
  SharedSet set_;
};

SharedSet share_on_node(const NodeShare& node, const std::function<SharedSet(Arena&)>& load) {
  if (node.exchange) return NodeLoad(node).run(load);
  Arena own;
  return load(own);
}

}  // namespace lockstep
