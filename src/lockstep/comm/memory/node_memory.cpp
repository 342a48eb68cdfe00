#include "lockstep/comm/memory/node_memory.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"

namespace lockstep::comm {
namespace {

using Memory = std::optional<base::SharedMemory>;

std::string fresh_mark() {
  std::random_device device;
  std::string mark;
  while (mark.size() < kMarkBytes) mark += format("{:08x}", device());
  return mark;
}

std::byte* mark_in(const base::SharedMemory& memory) {
  return static_cast<std::byte*>(memory.data()) + memory.size() - kMarkBytes;
}

// Names alone prove nothing: two containers may each have a piece of that name.
Memory open_marked(const std::string& name, const std::string& mark) {
  auto memory = base::SharedMemory::open(name);
  if (!memory || memory->size() < mark.size()) return std::nullopt;
  return std::memcmp(mark_in(*memory), mark.data(), mark.size()) == 0 ? std::move(memory) : std::nullopt;
}

// The name and the mark of this rank's piece, or why there is none.
std::vector<std::string> make_piece(Memory& own, size_t bytes) {
  try {
    own = base::SharedMemory::create(bytes);
  } catch (const Error& error) {
    return {format("{} ({})", error.what(), error.where())};
  }
  const std::string mark = fresh_mark();
  std::memcpy(mark_in(*own), mark.data(), mark.size());
  return {own->name(), mark};
}

}  // namespace

// The first collects, so that the store is asked a few times a rank, however many there are.
std::vector<std::string> exchange(c10d::Store& store, const std::string& stage, const NodeRanks& node,
                                  const std::string& own) {
  const auto key = [&](int rank) { return format("{}/{}", stage, rank); };
  const std::string all = stage + "/all";
  if (node.own != 0) {
    store.set(key(node.ranks[static_cast<size_t>(node.own)]), own);
    return base::unpack_texts(store.get_to_str(all));
  }
  std::vector<std::string> texts = {own};
  for (size_t place = 1; place < node.ranks.size(); ++place)
    texts.push_back(store.get_to_str(key(node.ranks[place])));
  store.set(all, base::pack_texts(texts));
  return texts;
}

NodeMemory share_memory(c10d::Store& store, const std::string& stage, const NodeRanks& node, size_t bytes) {
  std::vector<Memory> pieces(node.ranks.size());
  Memory& own = pieces[static_cast<size_t>(node.own)];
  const auto made = exchange(store, stage + "/piece", node, base::pack_texts(make_piece(own, bytes)));
  std::string why;
  for (size_t place = 0; place < pieces.size() && why.empty(); ++place) {
    const auto words = base::unpack_texts(made[place]);
    if (words.size() < 2) {
      why = format("rank {}: {}", node.ranks[place], words.at(0));
    } else if (!pieces[place] && !(pieces[place] = open_marked(words[0], words[1]))) {
      why = format("rank {} does not see the shared memory of rank {}, though both are on this node",
                   node.ranks[static_cast<size_t>(node.own)], node.ranks[place]);
    }
  }
  const auto all = exchange(store, stage + "/open", node, why);
  if (own) own->unlink();
  const auto failed = std::find_if(all.begin(), all.end(), [](const auto& text) { return !text.empty(); });
  if (failed != all.end()) return {{}, *failed};
  NodeMemory memory;
  for (auto& piece : pieces) memory.pieces.push_back(std::move(*piece));
  return memory;
}

}  // namespace lockstep::comm
