#include "lockstep/comm/mpi/backend.h"

#include <ATen/ATen.h>

#include <limits>

#include "lockstep/comm/mpi/block_tensors.h"
#include "lockstep/comm/mpi/message_work.h"
#include "lockstep/comm/mpi/mpi_messenger.h"
#include "lockstep/comm/watch/finished_work.h"
#include "lockstep/comm/watch/message.h"
#include "lockstep/comm/watch/op_names.h"
#include "lockstep/launch/process/mpi.h"

namespace lockstep::comm {
namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;

std::byte* data_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

void require_dense_cpu(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.device().is_cpu(), "the mpi backend takes CPU tensors, not one on ", tensor.device());
  TORCH_CHECK(tensor.layout() == c10::kStrided, "the mpi backend takes dense tensors, not ", tensor.layout());
}

at::Tensor& single(Tensors& tensors) {
  TORCH_CHECK(tensors.size() == 1, "the mpi backend takes one tensor a rank, not ", tensors.size());
  require_dense_cpu(tensors[0]);
  return tensors[0];
}

void require_alike(const at::Tensor& tensor, const at::Tensor& like) {
  require_dense_cpu(tensor);
  TORCH_CHECK(tensor.scalar_type() == like.scalar_type() && tensor.numel() == like.numel(),
              "the tensors of a collective differ: ", tensor.scalar_type(), " of ", tensor.sizes(), " and ",
              like.scalar_type(), " of ", like.sizes());
}

// A tensor seen as contiguous memory; written back to where it came from if that was not contiguous.
class Flat {
 public:
  explicit Flat(at::Tensor& tensor) : tensor_(tensor), flat_(tensor.contiguous()) {}
  std::byte* data() const { return data_of(flat_); }
  size_t bytes() const { return flat_.nbytes(); }
  size_t items() const { return static_cast<size_t>(flat_.numel()); }
  void write_back() {
    if (flat_.is_same(tensor_)) return;
    const at::NoGradGuard no_grad;  // it may be a parameter
    tensor_.copy_(flat_);
  }

 private:
  at::Tensor& tensor_;
  at::Tensor flat_;
};

std::vector<at::Tensor> pieces_of(const at::Tensor& whole, int count) {
  TORCH_CHECK(whole.is_contiguous() && whole.numel() % count == 0, "a tensor of ", whole.sizes(),
              " is not a contiguous row of ", count, " equal pieces");
  return whole.view({-1}).chunk(count);
}

int checked_tag(int tag) {
  TORCH_CHECK(tag >= 0 && tag <= 32767, "the tag ", tag, " is not one that every MPI has (0 to 32767)");
  return tag;
}

int checked_bytes(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.nbytes() <= static_cast<size_t>(std::numeric_limits<int>::max()),
              "a message of the mpi backend has at most 2 GiB, not ", tensor.nbytes(), " bytes");
  return static_cast<int>(tensor.nbytes());
}

}  // namespace

MpiBackend::MpiBackend(mpi::Comm world, std::shared_ptr<RollCall> roll, std::chrono::milliseconds timeout)
    : Backend(roll->rank(), static_cast<int>(roll->peers().size())),
      roll_(std::move(roll)),
      options_(c10::make_intrusive<Options>("mpi", timeout)),
      transport_(world) {}

MpiBackend::~MpiBackend() {
  roll_->leave();
}

std::string MpiBackend::difference_from(const Call& own, Patience& patience) {
  return difference(own, [&](const std::string& bytes) {
    std::vector<std::string> all(static_cast<size_t>(getSize()), std::string(bytes.size(), '\0'));
    std::vector<std::byte*> places;
    for (auto& text : all) places.push_back(reinterpret_cast<std::byte*>(text.data()));
    transport_.all_gather(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), places, patience);
    return all;
  });
}

template <class Body>
MpiBackend::WorkPtr MpiBackend::run(OpType type, const Tensors& tensors, const std::string& how,
                                    std::chrono::milliseconds timeout, Tensors results, Body&& body) {
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto limit = timeout == c10d::kUnsetTimeout ? options_->timeout : timeout;
  number_ = roll_->begin(type);
  std::exception_ptr error;
  std::string differs;
  try {
    Patience patience(*roll_, number_, limit, transport_.crowded());
    if (roll_->compares_calls()) differs = difference_from(call_of(type, tensors, how), patience);
    if (differs.empty()) body(patience);
  } catch (const OutOfPatience& reason) {
    error = roll_->judge({op_name(type), number_, limit}, reason.cause, reason.timed_out);
  }
  if (!differs.empty()) roll_->end_at(number_, differs);
  return c10::make_intrusive<FinishedWork>(getRank(), type, number_, std::move(results), error);
}

std::exception_ptr MpiBackend::carry(const Collective& collective,
                                     const std::function<void(Messenger&)>& body) {
  try {
    Patience patience(*roll_, collective.number, collective.timeout, true);
    MpiMessenger messenger(transport_.comms().all, *transport_.mpi(), *roll_, patience);
    body(messenger);
    return nullptr;
  } catch (const OutOfPatience& reason) {
    return roll_->judge(collective, reason.cause, reason.timed_out);
  } catch (const std::exception& error) {
    return roll_->judge(collective, error.what(), false);
  }
}

void MpiBackend::share(const Tensors& tensors) {
  const auto work = run(OpType::ALLGATHER, tensors, " of places in shared memory", options_->timeout, {},
                        [&](Patience& patience) {
                          const auto block = transport_.take_block(block_bytes(tensors), patience);
                          if (block) move_into(block, transport_.comms().local_rank, tensors);
                        });
  work->wait();
}

MpiBackend::WorkPtr MpiBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  at::Tensor& tensor = single(tensors);
  require_rank(options.rootRank, getSize(), "the root of a broadcast");
  return run(OpType::BROADCAST, tensors, of_root(options.rootRank), options.timeout, tensors,
             [&](Patience& patience) {
               Flat flat(tensor);
               transport_.broadcast(flat.data(), flat.bytes(), static_cast<int>(options.rootRank), patience);
               flat.write_back();
             });
}

void MpiBackend::reduce_all(at::Tensor& tensor, const c10d::ReduceOp& op, bool keep, Patience& patience) {
  const Reduction reduction = find_reduction(tensor.scalar_type(), op);
  Flat flat(tensor);
  transport_.all_reduce(flat.data(), keep ? flat.data() : nullptr, flat.items(), reduction, patience);
  if (!keep) return;
  if (reduction.divide) reduction.divide(flat.data(), flat.items(), getSize());
  flat.write_back();
}

MpiBackend::WorkPtr MpiBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  at::Tensor& tensor = single(tensors);
  find_reduction(tensor.scalar_type(), options.reduceOp);
  return run(OpType::ALLREDUCE, tensors, of_sum(options.reduceOp), options.timeout, tensors,
             [&](Patience& patience) { reduce_all(tensor, options.reduceOp, true, patience); });
}

MpiBackend::WorkPtr MpiBackend::allreduce_coalesced(Tensors& tensors,
                                                    const c10d::AllreduceCoalescedOptions& options) {
  for (auto& tensor : tensors) {
    require_dense_cpu(tensor);
    find_reduction(tensor.scalar_type(), options.reduceOp);
  }
  return run(OpType::ALLREDUCE_COALESCED, tensors, of_sum(options.reduceOp), options.timeout, tensors,
             [&](Patience& patience) {
               for (auto& tensor : tensors) reduce_all(tensor, options.reduceOp, true, patience);
             });
}

MpiBackend::WorkPtr MpiBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  at::Tensor& tensor = single(tensors);
  require_rank(options.rootRank, getSize(), "the root of a reduce");
  find_reduction(tensor.scalar_type(), options.reduceOp);
  return run(OpType::REDUCE, tensors, of_sum(options.reduceOp) + of_root(options.rootRank), options.timeout,
             tensors, [&](Patience& patience) {
               reduce_all(tensor, options.reduceOp, getRank() == options.rootRank, patience);
             });
}

MpiBackend::WorkPtr MpiBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) {
  at::Tensor& input = single(inputs);
  TORCH_CHECK(outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(getSize()), "an all-gather of ",
              getSize(), " ranks needs one list of ", getSize(), " tensors");
  for (const auto& output : outputs[0]) require_alike(output, input);
  return run(OpType::ALLGATHER, inputs, "", options.timeout, outputs[0], [&](Patience& patience) {
    const Flat from(input);
    std::vector<Flat> into;
    std::vector<std::byte*> places;
    for (auto& output : outputs[0]) places.push_back(into.emplace_back(output).data());
    transport_.all_gather(from.data(), from.bytes(), places, patience);
    for (auto& flat : into) flat.write_back();
  });
}

MpiBackend::WorkPtr MpiBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::AllgatherOptions& options) {
  TensorLists outputs = {pieces_of(output, getSize())};
  for (const auto& piece : outputs[0]) require_alike(piece, input);
  return run(OpType::_ALLGATHER_BASE, {input}, "", options.timeout, {output}, [&](Patience& patience) {
    const Flat from(input);
    std::vector<std::byte*> places;
    for (const auto& piece : outputs[0]) places.push_back(data_of(piece));
    transport_.all_gather(from.data(), from.bytes(), places, patience);
  });
}

void MpiBackend::scatter_sum(at::Tensor& output, const Tensors& inputs, const c10d::ReduceOp& op,
                             Patience& patience) {
  const Reduction reduction = find_reduction(output.scalar_type(), op);
  Flat flat(output);
  Tensors kept;
  std::vector<const std::byte*> places;
  for (const auto& input : inputs) places.push_back(data_of(kept.emplace_back(input.contiguous())));
  transport_.reduce_scatter(places, flat.data(), flat.items(), reduction, patience);
  if (reduction.divide) reduction.divide(flat.data(), flat.items(), getSize());
  flat.write_back();
}

MpiBackend::WorkPtr MpiBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                               const c10d::ReduceScatterOptions& options) {
  at::Tensor& output = single(outputs);
  TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(getSize()),
              "a reduce-scatter of ", getSize(), " ranks needs one list of ", getSize(), " tensors");
  for (const auto& input : inputs[0]) require_alike(input, output);
  find_reduction(output.scalar_type(), options.reduceOp);
  return run(OpType::REDUCE_SCATTER, outputs, of_sum(options.reduceOp), options.timeout, outputs,
             [&](Patience& patience) { scatter_sum(output, inputs[0], options.reduceOp, patience); });
}

MpiBackend::WorkPtr MpiBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                     const c10d::ReduceScatterOptions& options) {
  const Tensors pieces = pieces_of(input, getSize());
  for (const auto& piece : pieces) require_alike(piece, output);
  find_reduction(output.scalar_type(), options.reduceOp);
  return run(OpType::_REDUCE_SCATTER_BASE, {output}, of_sum(options.reduceOp), options.timeout, {output},
             [&](Patience& patience) { scatter_sum(output, pieces, options.reduceOp, patience); });
}

MpiBackend::WorkPtr MpiBackend::barrier(const c10d::BarrierOptions& options) {
  return run(OpType::BARRIER, {}, "", options.timeout, {},
             [&](Patience& patience) { transport_.barrier(patience); });
}

template <class Start>
MpiBackend::WorkPtr MpiBackend::post(OpType type, int peer, const at::Tensor& tensor,
                                     const at::Tensor& buffer, Start&& start) {
  roll_->require_alive();
  Collective expected = message_with(type, peer, options_->timeout);
  mpi::Request request = mpi::Request::null;
  int code = mpi::kSuccess;
  {
    const std::lock_guard<std::mutex> guard(*transport_.mpi());
    code = start(transport_.comms().all, &request);
  }
  if (code != mpi::kSuccess)
    std::rethrow_exception(roll_->judge(expected, launch::mpi_failure(code, expected.what.c_str()), false));
  return c10::make_intrusive<MessageWork>(getRank(), type,
                                          MessageWork::Transfer{tensor, buffer, std::move(expected)}, request,
                                          roll_, transport_.mpi());
}

MpiBackend::WorkPtr MpiBackend::send(Tensors& tensors, int to, int tag) {
  at::Tensor& tensor = single(tensors);
  require_rank(to, getSize(), "the receiver of a message");
  const at::Tensor buffer = tensor.contiguous();
  return post(
      OpType::SEND, to, tensor, buffer,
      [&, bytes = checked_bytes(buffer), tag = checked_tag(tag)](mpi::Comm all, mpi::Request* request) {
        return mpi::calls().isend(data_of(buffer), bytes, mpi::Type::byte, to, tag, all, request);
      });
}

MpiBackend::WorkPtr MpiBackend::receive(OpType type, Tensors& tensors, int from, int tag) {
  at::Tensor& tensor = single(tensors);
  const at::Tensor buffer =
      tensor.is_contiguous() ? tensor : at::empty_like(tensor, at::MemoryFormat::Contiguous);
  return post(
      type, type == OpType::RECV ? from : -1, tensor, buffer,
      [&, bytes = checked_bytes(buffer), tag = checked_tag(tag)](mpi::Comm all, mpi::Request* request) {
        return mpi::calls().irecv(data_of(buffer), bytes, mpi::Type::byte, from, tag, all, request);
      });
}

MpiBackend::WorkPtr MpiBackend::recv(Tensors& tensors, int from, int tag) {
  require_rank(from, getSize(), "the sender of a message");
  return receive(OpType::RECV, tensors, from, tag);
}

MpiBackend::WorkPtr MpiBackend::recvAnysource(Tensors& tensors, int tag) {
  return receive(OpType::RECVANYSOURCE, tensors, mpi::kAnySource, tag);
}

}  // namespace lockstep::comm
