#include "lockstep/comm/mpi/backend.h"

#include <ATen/ATen.h>

#include <limits>

#include "lockstep/comm/mpi/message_work.h"
#include "lockstep/comm/mpi/mpi_messenger.h"
#include "lockstep/comm/watch/message.h"
#include "lockstep/launch/process/mpi.h"

namespace lockstep::comm {
namespace {

using c10d::OpType;

int checked_tag(int tag) {
  TORCH_CHECK(tag >= 0 && tag < kExchangeTag, "the tag ", tag,
              " is not one that every MPI has for messages (0 to ", kExchangeTag - 1, ")");
  return tag;
}

int checked_bytes(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.nbytes() <= static_cast<size_t>(std::numeric_limits<int>::max()),
              "a message of the mpi backend has at most 2 GiB, not ", tensor.nbytes(), " bytes");
  return static_cast<int>(tensor.nbytes());
}

}  // namespace

MpiBackend::MpiBackend(mpi::Comm world, std::shared_ptr<RollCall> roll,
                       std::chrono::milliseconds join_timeout, std::chrono::milliseconds timeout)
    : InlineBackend("mpi", {}, std::make_unique<MpiTransport>(world, *roll, join_timeout), roll, timeout,
                    SumOrder::by_rank, Execution::in_the_call) {}

std::exception_ptr MpiBackend::carry(const Collective& collective,
                                     const std::function<void(Messenger&)>& body,
                                     const OnGivenUp& /*on_given_up*/) {
  try {
    Patience patience(roll_call(), collective.number, collective.timeout, true);
    MpiMessenger messenger(mpi().comms().all, kCollectiveTag, *mpi().mpi(), roll_call(), patience);
    body(messenger);
    return nullptr;
  } catch (const OutOfPatience& reason) {
    return roll_call().judge(collective, reason.cause, reason.timed_out);
  } catch (const std::exception& error) {
    return roll_call().judge(collective, error.what(), false);
  }
}

template <class Start>
MpiBackend::WorkPtr MpiBackend::post(OpType type, int peer, const at::Tensor& tensor,
                                     const at::Tensor& buffer, Start&& start) {
  roll_call().require_alive();
  Collective expected = message_with(type, peer, timeout());
  mpi::Request request = mpi::Request::null;
  int code = mpi::kSuccess;
  {
    const std::lock_guard<std::mutex> guard(*mpi().mpi());
    code = start(mpi().comms().all, &request);
  }
  if (code != mpi::kSuccess)
    std::rethrow_exception(
        roll_call().judge(expected, launch::mpi_failure(code, expected.what.c_str()), false));
  return c10::make_intrusive<MessageWork>(getRank(), type,
                                          MessageWork::Transfer{tensor, buffer, std::move(expected)}, request,
                                          shared_roll(), mpi().mpi());
}

MpiBackend::WorkPtr MpiBackend::send(Tensors& tensors, int to, int tag) {
  const at::Tensor& tensor = single(tensors);
  require_rank(to, getSize(), "the receiver of a message");
  const at::Tensor buffer = tensor.contiguous();
  return post(
      OpType::SEND, to, tensor, buffer,
      [&, bytes = checked_bytes(buffer), tag = checked_tag(tag)](mpi::Comm all, mpi::Request* request) {
        return mpi::calls().isend(buffer.data_ptr(), bytes, mpi::Type::byte, to, tag, all, request);
      });
}

MpiBackend::WorkPtr MpiBackend::receive(OpType type, Tensors& tensors, int from, int tag) {
  const at::Tensor& tensor = single(tensors);
  const at::Tensor buffer =
      tensor.is_contiguous() ? tensor : at::empty_like(tensor, at::MemoryFormat::Contiguous);
  return post(
      type, type == OpType::RECV ? from : -1, tensor, buffer,
      [&, bytes = checked_bytes(buffer), tag = checked_tag(tag)](mpi::Comm all, mpi::Request* request) {
        return mpi::calls().irecv(buffer.data_ptr(), bytes, mpi::Type::byte, from, tag, all, request);
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
