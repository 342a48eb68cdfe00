// The collectives that move tensors from rank to rank, and add nothing.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "lockstep/base/format.h"
#include "lockstep/comm/node/flat.h"
#include "lockstep/comm/node/inline_run.h"
#include "lockstep/comm/watch/message.h"

namespace lockstep::comm {
namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;

// rows[r] rows for rank r, or from it; equal parts where `rows` is empty.
Tensors parts_of(const at::Tensor& whole, const std::vector<int64_t>& rows, int ranks) {
  TORCH_CHECK(whole.dim() > 0 && (!rows.empty() || whole.size(0) % ranks == 0),
              "the first dimension of a tensor of ", whole.sizes(), " is not ", ranks,
              " equal parts, one a rank");
  if (rows.empty()) return pieces_of(whole, ranks);
  TORCH_CHECK(whole.is_contiguous() && rows.size() == static_cast<size_t>(ranks) &&
                  std::accumulate(rows.begin(), rows.end(), int64_t{0}) == whole.size(0),
              "a tensor of ", whole.sizes(), " is not contiguous, or not ", c10::IntArrayRef(rows),
              " rows, for ", ranks, " ranks");
  return whole.split_with_sizes(rows);
}

// Outgoing or Incoming, for each rank but `own`; what a rank has for itself is copied there.
template <class Message>
std::vector<Message> messages_of(const std::vector<std::span<std::byte>>& parts, int own) {
  std::vector<Message> messages;
  for (size_t rank = 0; rank < parts.size(); ++rank)
    if (static_cast<int>(rank) != own) messages.push_back({static_cast<int>(rank), parts[rank]});
  return messages;
}

void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  std::copy(from.begin(), from.end(), to.begin());
}

}  // namespace

InlineBackend::WorkPtr InlineBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                const c10d::AllgatherOptions& options) {
  if (is_for_base(inputs)) return ForwardingBackend::allgather(outputs, inputs, options);
  const at::Tensor& input = single(inputs);
  TORCH_CHECK(outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(getSize()), "an all-gather of ",
              getSize(), " ranks needs one list of ", getSize(), " tensors");
  for (const auto& output : outputs[0]) require_alike(output, input);
  return run({OpType::ALLGATHER, options.timeout}, inputs, outputs[0],
             [this, input, results = outputs[0]](Patience& patience) {
               const Flat from(input);
               Flats into(results);
               transport_->all_gather(from.data(), from.bytes(), into.places(), patience);
               into.write_back();
             });
}

InlineBackend::WorkPtr InlineBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::AllgatherOptions& options) {
  require_dense_cpu(input);
  const Tensors pieces = pieces_of(output, getSize());
  for (const auto& piece : pieces) require_alike(piece, input);
  return run({OpType::_ALLGATHER_BASE, options.timeout}, {input}, {output},
             [this, input, pieces](Patience& patience) {
               const Flat from(input);
               transport_->all_gather(from.data(), from.bytes(), Flats(pieces).places(), patience);
             });
}

InlineBackend::WorkPtr InlineBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                      const c10d::AllgatherOptions& options) {
  require_pairs(outputs, inputs);
  if (is_for_base({inputs[0]}))
    return ForwardingBackend::allgather_into_tensor_coalesced(outputs, inputs, options);
  TensorLists pieces;
  for (size_t i = 0; i < inputs.size(); ++i) {
    require_dense_cpu(inputs[i]);
    pieces.push_back(pieces_of(outputs[i], getSize()));
    for (const auto& piece : pieces[i]) require_alike(piece, inputs[i]);
  }
  return run({OpType::ALLGATHER_COALESCED, options.timeout}, inputs, outputs,
             [this, given = inputs, pieces](Patience& patience) {
               for (size_t i = 0; i < given.size(); ++i) {
                 const Flat from(given[i]);
                 transport_->all_gather(from.data(), from.bytes(), Flats(pieces[i]).places(), patience);
               }
             });
}

// A list of one tensor a rank on the root, and none elsewhere.
InlineBackend::Tensors InlineBackend::list_of_root(const TensorLists& lists, int root,
                                                   const at::Tensor& like) const {
  if (getRank() != root) {
    TORCH_CHECK(lists.empty(), "only the root, rank ", root, ", has a list of tensors");
    return {};
  }
  TORCH_CHECK(lists.size() == 1 && lists[0].size() == static_cast<size_t>(getSize()),
              "the root needs one list of ", getSize(), " tensors, one a rank");
  for (const auto& tensor : lists[0]) require_alike(tensor, like);
  return lists[0];
}

InlineBackend::WorkPtr InlineBackend::gather(TensorLists& outputs, Tensors& inputs,
                                             const c10d::GatherOptions& options) {
  if (is_for_base(inputs)) return ForwardingBackend::gather(outputs, inputs, options);
  const at::Tensor& input = single(inputs);
  require_rank(options.rootRank, getSize(), "the root of a gather");
  const int root = static_cast<int>(options.rootRank);
  const Tensors results = list_of_root(outputs, root, input);
  return run({OpType::GATHER, options.timeout, -1, root}, inputs, results,
             [this, input, results, root](Patience& patience) {
               const Flat from(input);
               Flats into(results);
               const auto places = into.spans();
               const Outgoing own{root, from.span()};
               if (getRank() == root) {
                 transport_->exchange({}, messages_of<Incoming>(places, root), from.bytes(), patience);
                 copy(from.span(), places[static_cast<size_t>(root)]);
               } else {
                 transport_->exchange({&own, 1}, {}, from.bytes(), patience);
               }
               into.write_back();
             });
}

InlineBackend::WorkPtr InlineBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                              const c10d::ScatterOptions& options) {
  if (is_for_base(outputs)) return ForwardingBackend::scatter(outputs, inputs, options);
  const at::Tensor& output = single(outputs);
  require_rank(options.rootRank, getSize(), "the root of a scatter");
  const int root = static_cast<int>(options.rootRank);
  return run({OpType::SCATTER, options.timeout, -1, root}, outputs, outputs,
             [this, output, given = list_of_root(inputs, root, output), root](Patience& patience) {
               Flat into(output);
               const Flats from(given);
               const auto places = from.spans();
               const Incoming own{root, into.span()};
               if (getRank() == root) {
                 transport_->exchange(messages_of<Outgoing>(places, root), {}, into.bytes(), patience);
                 copy(places[static_cast<size_t>(root)], into.span());
               } else {
                 transport_->exchange({}, {&own, 1}, into.bytes(), patience);
               }
               into.write_back();
             });
}

// What each rank has for another, that one has to expect. Returns the bytes of the longest message.
size_t InlineBackend::agree_on_sizes(at::ScalarType type, const Spans& out, const Spans& in,
                                     Patience& patience) {
  const size_t ranks = out.size();
  std::vector<uint64_t> own = {static_cast<uint64_t>(type)};  // then what it sends, then what it expects
  for (const auto& part : out) own.push_back(part.size());
  for (const auto& part : in) own.push_back(part.size());
  std::vector<std::vector<uint64_t>> rows(ranks, std::vector<uint64_t>(own.size()));
  std::vector<std::byte*> places;
  for (auto& row : rows) places.push_back(reinterpret_cast<std::byte*>(row.data()));
  transport_->all_gather(reinterpret_cast<const std::byte*>(own.data()), own.size() * sizeof(uint64_t),
                         places, patience);
  const auto type_of = [&](size_t rank) { return c10::toString(static_cast<at::ScalarType>(rows[rank][0])); };
  size_t most = 0;
  for (size_t from = 0; from < ranks; ++from) {
    for (size_t to = 0; to < ranks; ++to) {
      const size_t sent = rows[from][1 + to], expected = rows[to][1 + ranks + from];
      if (sent != expected || rows[from][0] != rows[to][0])
        std::rethrow_exception(roll_->end_at(
            patience.collective(),
            {format(
                "the ranks' calls differ: rank {} sends {} bytes of {} to rank {}, which expects {} of {}",
                from, sent, type_of(from), to, expected, type_of(to))},
            "compared before it ran"));
      if (from != to) most = std::max(most, sent);
    }
  }
  return most;
}

// outputs[r] from rank r, inputs[r] for it.
InlineBackend::WorkPtr InlineBackend::exchange(std::chrono::milliseconds limit, Tensors results,
                                               Tensors outputs, const Tensors& inputs) {
  const auto element = inputs[0].scalar_type();
  for (const auto* tensors : std::array<const Tensors*, 2>{&outputs, &inputs}) {
    for (const auto& tensor : *tensors) {
      require_dense_cpu(tensor);
      TORCH_CHECK(tensor.scalar_type() == element, "the tensors of an all-to-all differ: ", element, " and ",
                  tensor.scalar_type());
    }
  }
  return run({OpType::ALLTOALL_BASE, limit}, {}, std::move(results),
             [this, outputs = std::move(outputs), inputs, element](Patience& patience) {
               const Flats from(inputs);
               Flats into(outputs);
               const auto out = from.spans(), in = into.spans();
               const size_t most = agree_on_sizes(element, out, in, patience);
               transport_->exchange(messages_of<Outgoing>(out, getRank()),
                                    messages_of<Incoming>(in, getRank()), most, patience);
               const auto own = static_cast<size_t>(getRank());
               copy(out[own], in[own]);
               into.write_back();
             });
}

InlineBackend::WorkPtr InlineBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                    std::vector<int64_t>& output_counts,
                                                    std::vector<int64_t>& input_counts,
                                                    const c10d::AllToAllOptions& options) {
  if (is_for_base({input}))
    return ForwardingBackend::alltoall_base(output, input, output_counts, input_counts, options);
  return exchange(options.timeout, {output}, parts_of(output, output_counts, getSize()),
                  parts_of(input, input_counts, getSize()));
}

InlineBackend::WorkPtr InlineBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                               const c10d::AllToAllOptions& options) {
  const auto ranks = static_cast<size_t>(getSize());
  TORCH_CHECK(inputs.size() == ranks && outputs.size() == ranks, "an all-to-all of ", ranks,
              " ranks needs a tensor for each and one from each");
  if (is_for_base({inputs[0]})) return ForwardingBackend::alltoall(outputs, inputs, options);
  return exchange(options.timeout, outputs, outputs, inputs);
}

}  // namespace lockstep::comm
