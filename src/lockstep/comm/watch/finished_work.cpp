#include "lockstep/comm/watch/finished_work.h"

#include <algorithm>

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

namespace {

// A future of tensors on GPUs is told of which; those of CPUs have no number.
std::vector<c10::Device> gpus_of(const std::vector<at::Tensor>& tensors) {
  std::vector<c10::Device> gpus;
  for (const auto& tensor : tensors) {
    if (tensor.device().has_index() && std::count(gpus.begin(), gpus.end(), tensor.device()) == 0)
      gpus.push_back(tensor.device());
  }
  std::sort(gpus.begin(), gpus.end(), [](auto a, auto b) { return a.index() < b.index(); });
  return gpus;
}

}  // namespace

c10::intrusive_ptr<c10::ivalue::Future> FinishedWork::getFuture() {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                         gpus_of(tensors_));
  exception_ ? future->setError(exception_) : future->markCompleted(c10::IValue(tensors_));
  return future;
}

}  // namespace lockstep::comm
