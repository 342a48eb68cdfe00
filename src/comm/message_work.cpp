#include "comm/message_work.h"

#include "base/format.h"
#include "comm/op_names.h"
#include "comm/patience.h"

namespace lockstep::comm {

MessageWork::MessageWork(int rank, c10d::OpType type, Message message, MPI_Request request,
                         std::shared_ptr<RollCall> roll, std::shared_ptr<std::mutex> mpi)
    : Work(rank, type),
      message_(std::move(message)),
      request_(request),
      roll_(std::move(roll)),
      mpi_(std::move(mpi)),
      source_(message_.peer) {}

// A message nobody waited for may still read or fill the buffer: then that memory is given up, not freed.
MessageWork::~MessageWork() {
  try {
    if (request_ == MPI_REQUEST_NULL || test()) return;
  } catch (const OutOfPatience&) {
    return;  // MPI has given the message up
  }
  const std::lock_guard<std::mutex> guard(*mpi_);
  MPI_Request_free(&request_);
  message_.buffer.unsafeReleaseIntrusivePtr().release();
}

bool MessageWork::test() {
  if (request_ == MPI_REQUEST_NULL) return true;
  int done = 0;
  int code = MPI_SUCCESS;
  MPI_Status status;
  {
    const std::lock_guard<std::mutex> guard(*mpi_);
    code = MPI_Test(&request_, &done, &status);
  }
  if (code != MPI_SUCCESS) throw OutOfPatience{false};
  if (!done) return false;
  if (opType_ != c10d::OpType::SEND) {
    source_ = status.MPI_SOURCE;
    if (!message_.buffer.is_same(message_.tensor)) message_.tensor.copy_(message_.buffer);
  }
  finish();
  return true;
}

bool MessageWork::isCompleted() {
  return test();
}

bool MessageWork::wait(std::chrono::milliseconds timeout) {
  const bool own = timeout != kNoTimeout;
  const Collective collective{op_name(opType_), 0, own ? timeout : message_.timeout};
  try {
    Patience patience(*roll_, 0, collective.timeout, true);
    while (!test()) patience.turn(message_.peer);
  } catch (const OutOfPatience& reason) {
    const std::string cause = message_.peer < 0 ? "nobody has sent one"
                                                : format("rank {} {}", message_.peer,
                                                         opType_ == c10d::OpType::SEND ? "has not received it"
                                                                                       : "has not sent one");
    std::rethrow_exception(roll_->judge(collective, cause, reason.timed_out));
  }
  return true;
}

}  // namespace lockstep::comm
