#include "lockstep/comm/algorithm_backend.h"

#include <ATen/ATen.h>

#include "lockstep/base/format.h"
#include "lockstep/comm/mpi/reduction.h"
#include "lockstep/comm/watch/calls.h"
#include "lockstep/comm/watch/op_names.h"

namespace lockstep::comm {
namespace {

using c10d::OpType;
using Clock = std::chrono::steady_clock;

Carrier& carrier_in(c10d::Backend& base) {
  auto* carrier = dynamic_cast<Carrier*>(&base);
  TORCH_CHECK(carrier, "the backend ", base.getBackendName(), " carries no messages of collectives");
  return *carrier;
}

void require_dense_cpu(const std::vector<at::Tensor>& tensors, const std::string& name) {
  for (const auto& tensor : tensors)
    TORCH_CHECK(tensor.device().is_cpu() && tensor.layout() == c10::kStrided, "the all-reduce ", name,
                " takes dense CPU tensors, not a ", tensor.layout(), " one on ", tensor.device());
}

at::Tensor byte_tensor(const std::string& text) {
  return at::from_blob(const_cast<char*>(text.data()), {static_cast<int64_t>(text.size())}, at::kByte)
      .clone();
}

std::vector<std::string> gather_over(c10d::Backend& base, const std::string& own) {
  std::vector<at::Tensor> mine = {byte_tensor(own)};
  std::vector<std::vector<at::Tensor>> all(1);
  for (int rank = 0; rank < base.getSize(); ++rank) all[0].push_back(at::empty_like(mine[0]));
  base.allgather(all, mine, {})->wait();
  std::vector<std::string> texts;
  for (const auto& bytes : all[0])
    texts.emplace_back(reinterpret_cast<const char*>(bytes.data_ptr<uint8_t>()), own.size());
  return texts;
}

}  // namespace

class AlgorithmBackend::Sum : public c10d::Work {
 public:
  Sum(int rank, OpType type, Collective collective, Tensors tensors, std::vector<Reduction> reductions)
      : Work(rank, type),
        collective(std::move(collective)),
        tensors(std::move(tensors)),
        reductions(std::move(reductions)),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

  std::vector<at::Tensor> result() override { return tensors; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  uint64_t getSequencenumber() const override { return collective.number; }
  void end(const std::exception_ptr& error) {
    finish(error);
    error ? future_->setError(error) : future_->markCompleted(c10::IValue(tensors));
  }

  const Collective collective;
  Tensors tensors;
  const std::vector<Reduction> reductions;  // one for each tensor

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

AlgorithmBackend::AlgorithmBackend(c10::intrusive_ptr<c10d::Backend> base, const Algorithm& algorithm,
                                   Delay delay, std::shared_ptr<RollCall> roll,
                                   std::chrono::milliseconds timeout)
    : Backend(base->getRank(), base->getSize()),
      base_(std::move(base)),
      carrier_(carrier_in(*base_)),
      algorithm_(algorithm),
      roll_(std::move(roll)),
      timeout_(timeout),
      delay_(delay),
      thread_([this] { serve(); }) {}

// What has begun ends, or meets its limit: the others count on it.
AlgorithmBackend::~AlgorithmBackend() {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    end_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void AlgorithmBackend::set_delay(Delay delay) {
  const std::lock_guard<std::mutex> guard(mutex_);
  delay_ = delay;
}

double AlgorithmBackend::busy() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  return busy_;
}

std::exception_ptr AlgorithmBackend::carry(const Collective& collective,
                                           const std::function<void(Messenger&)>& body) {
  const auto delay = [this] {
    const std::lock_guard<std::mutex> guard(mutex_);
    return delay_;
  }();
  if (delay == Delay{}) return carrier_.carry(collective, body);
  return carrier_.carry(collective, [&](Messenger& messenger) {
    Delayed delayed(messenger, delay);
    body(delayed);
  });
}

// TORCH_DISTRIBUTED_DEBUG=DETAIL: over the base's all-gather, which every rank comes to.
void AlgorithmBackend::compare(const Collective& collective, OpType type, const Tensors& tensors,
                               const c10d::ReduceOp& op) {
  const auto found = difference(call_of(type, tensors, of_sum(op)),
                                [this](const std::string& own) { return gather_over(*base_, own); });
  if (!found.empty()) roll_->end_at(collective.number, found);
}

AlgorithmBackend::WorkPtr AlgorithmBackend::begin(OpType type, const Tensors& tensors,
                                                  const c10d::ReduceOp& op,
                                                  std::chrono::milliseconds timeout) {
  require_dense_cpu(tensors, algorithm_.name);
  std::vector<Reduction> reductions;
  for (const auto& tensor : tensors) reductions.push_back(find_reduction(tensor.scalar_type(), op));
  const Collective collective{format("{} ({})", op_name(type), algorithm_.name), roll_->begin(type),
                              timeout == c10d::kUnsetTimeout ? timeout_.load() : timeout};
  if (roll_->compares_calls()) compare(collective, type, tensors, op);
  auto sum = c10::make_intrusive<Sum>(getRank(), type, collective, tensors, std::move(reductions));
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    waiting_.push_back(sum);
  }
  changed_.notify_all();
  return sum;
}

AlgorithmBackend::WorkPtr AlgorithmBackend::allreduce(Tensors& tensors,
                                                      const c10d::AllreduceOptions& options) {
  TORCH_CHECK(tensors.size() == 1, "the all-reduce ", algorithm_.name, " takes one tensor a rank, not ",
              tensors.size());
  return begin(OpType::ALLREDUCE, tensors, options.reduceOp, options.timeout);
}

AlgorithmBackend::WorkPtr AlgorithmBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return begin(OpType::ALLREDUCE_COALESCED, tensors, options.reduceOp, options.timeout);
}

std::exception_ptr AlgorithmBackend::run(Sum& sum) {
  const at::NoGradGuard no_grad;  // it may be a parameter
  return carry(sum.collective, [&](Messenger& messenger) {
    for (size_t i = 0; i < sum.tensors.size(); ++i) {
      const auto& reduction = sum.reductions[i];
      const auto flat = sum.tensors[i].contiguous();
      const Numbers numbers{static_cast<std::byte*>(flat.data_ptr()),
                            static_cast<size_t>(flat.numel()),
                            {reduction.item_bytes, reduction.combine}};
      algorithm_.run(messenger, numbers);
      if (reduction.divide) reduction.divide(numbers.data, numbers.items, getSize());
      if (!flat.is_same(sum.tensors[i])) sum.tensors[i].copy_(flat);
    }
  });
}

std::exception_ptr AlgorithmBackend::death() {
  try {
    roll_->require_alive();
    return nullptr;
  } catch (const std::exception&) {
    return std::current_exception();
  }
}

void AlgorithmBackend::serve() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return end_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const auto sum = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    const auto begin = Clock::now();
    const auto error = roll_->is_dead() ? death() : run(*sum);
    const std::chrono::duration<double> passed = Clock::now() - begin;
    lock.lock();
    busy_ += passed.count();
    lock.unlock();
    sum->end(error);
    lock.lock();
  }
}

}  // namespace lockstep::comm
