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
#include <nlohmann/json.hpp>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
using Map = std::shared_ptr<base::FileMap>;

constexpr const char* kWhere = "the memory or file that the ranks of this node share";

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

/// An anonymous file in memory. Each tensor begins on a page of its own.
struct Arena::File {
  struct Part {
    int64_t offset;  // in the file
    Map map;
    size_t file = 0;  // 0 = the one in memory
  };

  File() : file(::memfd_create("lockstep-data", MFD_CLOEXEC)) {
    if (!file)
      throw Error(format("cannot make a file in memory: {}", std::strerror(errno)), kWhere,
                  "start one rank per node, or ask the administrator to allow memfd_create");
  }

  at::Tensor empty(at::IntArrayRef shape, at::ScalarType type) {
    const auto bytes = static_cast<int64_t>(c10::multiply_integers(shape) * c10::elementSize(type));
    const auto mapped = std::max<int64_t>(bytes, 1);
    // allocates the memory now: without it, a later write would raise SIGBUS
    if (const int failed = ::posix_fallocate(file.number(), end, mapped))
      throw Error(format("no memory for {} bytes of the data set: {}", bytes, std::strerror(failed)), kWhere,
                  "request more memory per node");
    const auto map = std::make_shared<base::FileMap>(file.number(), end, static_cast<size_t>(mapped),
                                                     PROT_READ | PROT_WRITE, MAP_SHARED, kWhere);
    parts.push_back({end, map});
    const int64_t page = ::sysconf(_SC_PAGESIZE);
    end += (mapped + page - 1) / page * page;
    return view_of(map, 0, shape, type);
  }

  /// Where the tensor's data lies: the number of a file, and the offset there. A tensor from elsewhere is
  /// copied into the file in memory first.
  std::pair<size_t, int64_t> place(at::Tensor& tensor) {
    const auto* data = static_cast<const char*>(tensor.const_data_ptr());
    for (const auto& [offset, map, number] : parts)
      if (tensor.is_contiguous() && map->holds(data)) return {number, offset + (data - map->data())};
    tensor = empty(tensor.sizes(), tensor.scalar_type()).copy_(tensor);
    return {0, parts.back().offset};
  }

  base::Descriptor file;
  int64_t end = 0;
  std::vector<Part> parts;
  std::vector<base::Descriptor> others = {};  // files 1, 2, ...
};

Arena::Arena() = default;
Arena::~Arena() = default;

at::Tensor Arena::empty(at::IntArrayRef shape, at::ScalarType type) {
  return file_ ? file_->empty(shape, type) : at::empty(shape, at::TensorOptions(type));
}

void Arena::add_file(const std::shared_ptr<base::FileMap>& map, int file) {
  if (!file_) return;
  file_->others.emplace_back(::fcntl(file, F_DUPFD_CLOEXEC, 0));
  file_->parts.push_back({0, map, file_->others.size()});
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
    // the file stays open until the other ranks have mapped it
    exchange([&] {
      if (!loads() && !map(loaded)) {
        log::warning("cannot open the memory of the rank that loaded the data set: this rank loads it, too");
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

  /// The result of each rank's work. Throws the error of the first rank that has one, on every rank.
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

  std::string offer() {
    auto tensors = Json::array(), files = Json::array();
    for (auto& tensor : set_.tensors) {
      const auto [file, place] = arena_.file_->place(tensor);
      tensors.push_back({{"file", file},
                         {"place", place},
                         {"type", static_cast<int>(tensor.scalar_type())},
                         {"shape", tensor.sizes().vec()}});
    }
    const auto add = [&](const base::Descriptor& file) {
      const auto facts = facts_of(file);
      files.push_back({{"path", format("/proc/{}/fd/{}", ::getpid(), file.number())},
                       {"device", facts.st_dev},
                       {"inode", facts.st_ino},
                       {"size", facts.st_size}});
    };
    add(arena_.file_->file);
    for (const auto& file : arena_.file_->others) add(file);
    std::string bytes;  // not as text: a set's text may contain any byte
    Json::to_msgpack({{"node", node_.node_rank}, {"files", files}, {"text", set_.text}, {"tensors", tensors}},
                     bytes);
    return bytes;
  }

  /// False if the ranks cannot open each other's files, for example in separate PID namespaces.
  bool map(const std::vector<std::string>& offers) {
    for (const auto& bytes : offers) {
      if (bytes.empty()) continue;
      const auto offer = Json::from_msgpack(bytes);
      if (offer.at("node") == node_.node_rank) return map_offer(offer);
    }
    return false;
  }

  bool map_offer(const Json& offer) {
    std::vector<Map> maps;
    for (const auto& made : offer.at("files")) {
      const base::Descriptor file(
          ::open(made.at("path").get<std::string>().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
      const auto facts = facts_of(file);
      if (!file || made.at("size") != facts.st_size || made.at("inode") != facts.st_ino ||
          made.at("device") != facts.st_dev)
        return false;
      maps.push_back(facts.st_size == 0 ? nullptr  // no tensors
                                        : std::make_shared<base::FileMap>(file.number(), 0,
                                                                          static_cast<size_t>(facts.st_size),
                                                                          PROT_READ, MAP_SHARED, kWhere));
    }
    offer.at("text").get_to(set_.text);
    for (const auto& tensor : offer.at("tensors"))
      set_.tensors.push_back(view_of(maps.at(tensor.at("file")), tensor.at("place"),
                                     tensor.at("shape").get<std::vector<int64_t>>(),
                                     static_cast<at::ScalarType>(tensor.at("type").get<int>())));
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
