#include "lockstep/comm/watch/finished_work.h"

namespace lockstep::comm {

FinishedWork::FinishedWork(int rank, c10d::OpType type, uint64_t number, std::vector<at::Tensor> tensors,
                           std::exception_ptr error)
    : Work(rank, type), number_(number), tensors_(std::move(tensors)) {
  finish(std::move(error));
}

bool FinishedWork::wait(std::chrono::milliseconds) {
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> FinishedWork::getFuture() {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  exception_ ? future->setError(exception_) : future->markCompleted(c10::IValue(tensors_));
  return future;
}

}  // namespace lockstep::comm
