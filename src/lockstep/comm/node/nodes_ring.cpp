#include "lockstep/comm/node/nodes_ring.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/comm/algorithms/gloo_chunks.h"
#include "lockstep/comm/memory/node_window.h"

namespace lockstep::comm {
namespace {

// Below it a second rank that speaks with other nodes costs more than it saves.
constexpr size_t kBytesPerHandler = size_t{64} << 10;

}  // namespace

// In gloo's chunks, of which the last may be short or empty.
struct NodesRing::Message {
  size_t items;
  size_t item_bytes;
  size_t chunk;

  size_t bytes() const { return items * item_bytes; }
  size_t first_of(int index) const { return std::min(items, static_cast<size_t>(index) * chunk); }
  size_t items_of(int index) const { return first_of(index + 1) - first_of(index); }
};

// Some bytes of a slot, and where they stand in what travels.
struct NodesRing::Span {
  int chunk;
  size_t begin;
  size_t bytes;
  size_t travels;
};

// What one rank of a node does for all of it: its section of each chunk goes round the nodes.
class NodesRing::Pass {
 public:
  Pass(NodesRing& ring, Messenger& messenger, const Message& message, const Reduction& reduction,
       int handlers)
      : window_(ring.window_),
        layout_(ring.layout_),
        messenger_(messenger),
        message_(message),
        reduction_(reduction),
        handlers_(handlers) {}

  void run() {
    const int nodes = layout_.nodes(), own = layout_.own;
    std::vector<std::byte> partial = begin(own), theirs;
    for (int step = 1; step <= nodes; ++step) {
      const int block = (own + step) % nodes;
      exchange(partial, theirs, block);
      partial.swap(theirs);
      block == own ? end(partial) : add_node(partial, block);
    }
    for (int step = 1; step < nodes; ++step) {  // the sums go round
      const int block = (own + step) % nodes;
      exchange(partial, theirs, block);
      partial.swap(theirs);
      keep(partial, block);
    }
  }

 private:
  // Those chunks whose first rank is on a node: this rank's section of each.
  template <class Body>
  void for_each_span(int block, Body body) const {
    const auto own = static_cast<size_t>(window_.rank()), all = static_cast<size_t>(handlers_);
    size_t travels = 0;
    for (int first = layout_.first(block); first < layout_.first(block + 1); ++first) {
      const int chunk = (first + 1) % layout_.world();
      const size_t items = message_.items_of(chunk);
      const size_t begin = items * own / all, end = items * (own + 1) / all;
      if (begin == end) continue;
      const Span span{chunk, (message_.first_of(chunk) + begin) * message_.item_bytes,
                      (end - begin) * message_.item_bytes, travels};
      body(span);
      travels += span.bytes;
    }
  }

  size_t bytes_of(int block) const {
    size_t bytes = 0;
    for_each_span(block, [&](const Span& span) { bytes += span.bytes; });
    return bytes;
  }

  void exchange(const std::vector<std::byte>& out, std::vector<std::byte>& in, int block) {
    const int nodes = layout_.nodes();
    const int to = (layout_.own + nodes - 1) % nodes, from = (layout_.own + 1) % nodes;
    in.resize(bytes_of(block));
    messenger_.exchange({layout_.first(to) + window_.rank(), out},
                        {layout_.first(from) + window_.rank(), in});
  }

  // To `sum`, which may hold what others have made of it, this node's ranks from `last` down to `first`.
  void add(std::byte* sum, bool has_some, const Span& span, int last, int first) {
    sources_.clear();
    if (has_some) sources_.push_back(sum);
    for (int rank = last; rank >= first; --rank)
      sources_.push_back(window_.slot(rank - layout_.first(layout_.own)) + span.begin);
    if (sources_.size() == 1 && has_some) return;
    reduction_.combine(sources_.data(), sources_.size(), sum, span.bytes / message_.item_bytes);
  }

  // From the rank before the chunk down to the node's first.
  std::vector<std::byte> begin(int block) {
    std::vector<std::byte> sums(bytes_of(block));
    for_each_span(block, [&](const Span& span) {
      add(sums.data() + span.travels, false, span, rank_before(span.chunk), layout_.first(block));
    });
    return sums;
  }

  void add_node(std::vector<std::byte>& partial, int block) {
    for_each_span(block, [&](const Span& span) {
      add(partial.data() + span.travels, true, span, layout_.first(layout_.own + 1) - 1,
          layout_.first(layout_.own));
    });
  }

  // Back where it began: the node's ranks behind the first one.
  void end(std::vector<std::byte>& partial) {
    for_each_span(layout_.own, [&](const Span& span) {
      add(partial.data() + span.travels, true, span, layout_.first(layout_.own + 1) - 1,
          rank_before(span.chunk) + 1);
    });
    keep(partial, layout_.own);
  }

  // For the ranks of the node, where nobody else reads: all that was there is in a partial sum.
  void keep(const std::vector<std::byte>& sums, int block) {
    for_each_span(block, [&](const Span& span) {
      std::memcpy(window_.slot(0) + span.begin, sums.data() + span.travels, span.bytes);
    });
  }

  int rank_before(int chunk) const { return (chunk + layout_.world() - 1) % layout_.world(); }

  NodeWindow& window_;
  const NodeLayout& layout_;
  Messenger& messenger_;
  const Message& message_;
  const Reduction& reduction_;
  int handlers_;
  std::vector<const std::byte*> sources_;
};

NodesRing::NodesRing(NodeWindow& window, NodeLayout layout) : window_(window), layout_(std::move(layout)) {
  most_handlers_ = layout_.world();
  for (int node = 0; node < layout_.nodes(); ++node)
    most_handlers_ = std::min(most_handlers_, layout_.ranks(node));
}

int NodesRing::handlers(size_t bytes) const {
  return static_cast<int>(
      std::clamp<size_t>(bytes / kBytesPerHandler, 1, static_cast<size_t>(most_handlers_)));
}

void NodesRing::all_reduce(Messenger& messenger, std::byte* data, size_t items, const Reduction& reduction,
                           BoundedWait& wait) {
  const size_t chunk = algorithms::gloo_chunk(items, reduction.item_bytes, layout_.world());
  const Message message{items, reduction.item_bytes, chunk};
  const int handling = handlers(message.bytes());
  window_.begin(wait);
  copy_into_slot(window_.own_slot(), data, message.bytes());
  window_.post();
  if (window_.rank() < handling) {
    window_.wait_all(wait);
    Pass(*this, messenger, message, reduction, handling).run();
  }
  window_.post();
  for (int rank = 0; rank < handling; ++rank) window_.wait(rank, wait);
  copy_in_pieces(window_.slot(0), data, message.bytes());
}

}  // namespace lockstep::comm
