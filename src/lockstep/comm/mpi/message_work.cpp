#include "lockstep/comm/mpi/message_work.h"

#include "lockstep/base/format.h"
#include "lockstep/comm/mpi/comms.h"

namespace lockstep::comm {

MessageWork::MessageWork(int rank, c10d::OpType type, Transfer transfer, mpi::Request request,
                         std::shared_ptr<RollCall> roll, std::shared_ptr<std::mutex> mpi)
    : Work(rank, type),
      transfer_(std::move(transfer)),
      request_(request),
      roll_(std::move(roll)),
      mpi_(std::move(mpi)),
      source_(transfer_.expected.peer) {}

// A message nobody waited for may still read or fill the buffer: then that memory is given up, not freed.
MessageWork::~MessageWork() {
  try {
    if (test()) return;
  } catch (const OutOfPatience&) {
    return;  // MPI has given the message up
  }
  const std::lock_guard<std::mutex> guard(*mpi_);
  mpi::calls().request_free(&request_);
  transfer_.buffer.unsafeReleaseIntrusivePtr().release();
}

bool MessageWork::test() {
  if (request_ == mpi::Request::null) return true;
  int done = 0;
  mpi::Status status;
  {
    const std::lock_guard<std::mutex> guard(*mpi_);
    require_success(mpi::calls().test(&request_, &done, &status), "MPI_Test");
  }
  if (!done) return false;
  if (opType_ != c10d::OpType::SEND) take(status);
  finish();
  return true;
}

// MPI is content with a message that is too short, and the rest of the tensor would stay what it was.
void MessageWork::take(const mpi::Status& status) {
  source_ = status.source;
  int bytes = 0;
  require_success(mpi::calls().get_count(&status, mpi::Type::byte, &bytes), "MPI_Get_count");
  if (static_cast<size_t>(bytes) != transfer_.buffer.nbytes()) {
    throw OutOfPatience{false, format("rank {} sent {} bytes, and rank {} waits for {}", source_, bytes,
                                      rank_, transfer_.buffer.nbytes())};
  }
  if (!transfer_.buffer.is_same(transfer_.tensor)) transfer_.tensor.copy_(transfer_.buffer);
}

void MessageWork::fail(const Collective& expected, const OutOfPatience& reason) {
  finish(roll_->judge(expected, reason.cause, reason.timed_out));
}

bool MessageWork::isCompleted() {
  try {
    return Work::isCompleted() || test();
  } catch (const OutOfPatience& reason) {
    fail(transfer_.expected, reason);
    return true;
  }
}

bool MessageWork::wait(std::chrono::milliseconds timeout) {
  Collective expected = transfer_.expected;
  if (timeout != kNoTimeout) expected.timeout = timeout;
  try {
    if (!Work::isCompleted()) wait_for(expected);
  } catch (const OutOfPatience& reason) {
    fail(expected, reason);
  }
  if (const auto error = exception()) std::rethrow_exception(error);
  return true;
}

void MessageWork::wait_for(const Collective& expected) {
  Patience patience(*roll_, 0, expected.timeout, true);
  while (!test()) {
    try {
      patience.turn(expected.peer);
    } catch (const OutOfPatience&) {
      if (!test()) throw;  // the other may have sent and then ended
    }
  }
}

}  // namespace lockstep::comm
