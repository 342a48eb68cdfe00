#include "lockstep/parallel/comm_hook.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <map>
#include <random>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/plugins/tables.h"

namespace lockstep {

int64_t GradBucket::index() const {
  return static_cast<int64_t>(bucket_.getIndex());
}
bool GradBucket::is_last() const {
  return bucket_.isLast();
}
at::Tensor GradBucket::buffer() const {
  return bucket_.getBuffer();
}
void GradBucket::set_buffer(at::Tensor buffer) {
  bucket_.setBuffer(buffer);
}
std::vector<at::Tensor> GradBucket::gradients() const {
  return bucket_.getGradients();
}
std::vector<at::Tensor> GradBucket::parameters() const {
  return bucket_.getParameters();
}

namespace hooks {
namespace {

at::Tensor first_tensor(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : value.toTensorVector().at(0);
}

const HookMemory kKeepsNothing;

// Divided first, so that float16 sums stay in range.
CommHook compress(ProcessGroup group, at::ScalarType type) {
  const auto call = [group = std::move(group), type](GradBucket& bucket) {
    const at::Tensor buffer = bucket.buffer();
    const at::Tensor small = buffer.to(type).div_(group->getSize());
    return then(all_reduce(group, small), [buffer](at::Tensor sum) { return buffer.copy_(sum); });
  };
  return {call, kKeepsNothing};
}

CommHook compress_wrapper(const CommHook& hook, at::ScalarType type) {
  const auto call = [hook, type](GradBucket& bucket) {
    const at::Tensor buffer = bucket.buffer();
    bucket.set_buffer(buffer.to(type));
    return then(hook(bucket), [buffer](at::Tensor reduced) { return buffer.copy_(reduced); });
  };
  return {call, hook};
}

}  // namespace

GradFuture all_reduce(const ProcessGroup& group, at::Tensor tensor) {
  std::vector<at::Tensor> tensors{std::move(tensor)};
  return then(group->allreduce(tensors)->getFuture(), [](at::Tensor sum) { return sum; });
}

GradFuture ready(at::Tensor tensor) {
  std::vector<c10::Device> devices;
  if (!tensor.device().is_cpu()) devices.push_back(tensor.device());
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get(), std::move(devices));
  future->markCompleted(c10::IValue(std::move(tensor)));
  return future;
}

GradFuture then(const GradFuture& future, std::function<at::Tensor(at::Tensor)> next) {
  // value() rethrows what went wrong; wait() would not
  return future->then(
      [next = std::move(next)](c10::ivalue::Future& done) {
        return c10::IValue(next(first_tensor(done.value())));
      },
      c10::TensorType::get());
}

CommHook allreduce(ProcessGroup group) {
  const auto call = [group = std::move(group)](GradBucket& bucket) {
    return all_reduce(group, bucket.buffer().div_(group->getSize()));
  };
  return {call, kKeepsNothing};
}

CommHook fp16_compress(ProcessGroup group) {
  return compress(std::move(group), at::kHalf);
}
CommHook bf16_compress(ProcessGroup group) {
  return compress(std::move(group), at::kBFloat16);
}
CommHook fp16_compress_wrapper(CommHook hook) {
  return compress_wrapper(hook, at::kHalf);
}
CommHook bf16_compress_wrapper(CommHook hook) {
  return compress_wrapper(hook, at::kBFloat16);
}

CommHook by_name(const std::string& name, ProcessGroup group, const RowOptions& options) {
  return base::require<CommHookRow>("comm hook", name, "ddp.comm_hook").make(std::move(group), options);
}

}  // namespace hooks

LOCKSTEP_COMM_HOOK(
    none, .help = "the mean, without a hook",
    .make = [](ProcessGroup, const RowOptions&) { return CommHook(); })
LOCKSTEP_COMM_HOOK(
    allreduce, .help = "the mean, by a hook: the same bits",
    .make = [](ProcessGroup group, const RowOptions&) { return hooks::allreduce(std::move(group)); })
LOCKSTEP_COMM_HOOK(
    fp16, .help = "sends gradients as float16, half the bytes",
    .make = [](ProcessGroup group, const RowOptions&) { return hooks::fp16_compress(std::move(group)); })
LOCKSTEP_COMM_HOOK(
    bf16, .help = "sends gradients as bfloat16, half the bytes with float32's range",
    .make = [](ProcessGroup group, const RowOptions&) { return hooks::bf16_compress(std::move(group)); })

}  // namespace lockstep

namespace lockstep::hooks {

// PowerSGD (Vogels, Karimireddy, Jaggi 2019), step for step as Python's powerSGD_hook does it.

namespace {

using Tensors = std::vector<at::Tensor>;

void gram_schmidt(const at::Tensor& matrices, double epsilon) {
  const auto columns = matrices.size(2);
  for (int64_t i = 0; i < columns; ++i) {
    at::Tensor column = matrices.slice(2, i, i + 1);
    at::Tensor norm = at::linalg_vector_norm(column, 2, at::IntArrayRef{1}, /*keepdim=*/true);
    column.div_(epsilon == 0 ? norm : norm.add_(epsilon));
    if (i + 1 == columns) break;
    at::Tensor rest = matrices.slice(2, i + 1);
    rest.sub_(at::sum(column * rest, at::IntArrayRef{1}, /*keepdim=*/true) * column);
  }
}

void orthogonalize(at::Tensor matrices, double epsilon) {
  const auto rank = matrices.size(2);
  const bool half = matrices.scalar_type() == at::kHalf || matrices.scalar_type() == at::kBFloat16;
  if (rank <= 2 || half) return gram_schmidt(matrices, epsilon);
  at::Tensor r = at::empty({matrices.size(0), rank, rank}, matrices.options());
  at::linalg_qr_out(matrices, r, matrices);
}

// The bucket's gradients, divided into matrices worth compressing and the rest.
struct Parts {
  std::vector<Tensors> shapes;  // matrices grouped by shape, in order of first appearance
  Tensors uncompressed;
};

class PowerSgd {
 public:
  PowerSgd(ProcessGroup group, PowerSgdOptions options)
      : group_(std::move(group)), options_(options), engine_(options.random_seed) {
    if (options_.matrix_approximation_rank < 1)
      throw InputError(format("matrix_approximation_rank is {}", options_.matrix_approximation_rank),
                       "powersgd", "choose 1 or more: the rank of the matrices that approximate a gradient");
    if ((options_.use_error_feedback || options_.warm_start) && options_.start_powerSGD_iter <= 1)
      throw InputError(
          "start_powerSGD_iter is below 2", "powersgd",
          "set it to 2 or more with warm_start or use_error_feedback: DDP rebuilds its buckets after step 1");
  }

  GradFuture operator()(GradBucket& bucket) {
    if (iteration_ >= options_.start_powerSGD_iter) return ready(compress(bucket));
    count(bucket);
    return allreduce(group_)(bucket);
  }

  HookState state() const {
    HookState state{{"iteration", at::scalar_tensor(iteration_, at::kLong)},
                    {"drawn", at::scalar_tensor(drawn_, at::kLong)}};
    for (const auto& [bucket, memory] : memory_) {
      if (memory.error.defined()) state[format("error.{}", bucket)] = memory.error;
      if (memory.q.defined()) state[format("q.{}", bucket)] = memory.q;
    }
    state.insert(loaded_.begin(), loaded_.end());  // existing entries are newer
    return state;
  }

  void load(const HookState& state) {
    const auto number = [&state](const char* name) {
      constexpr int64_t kMost = 1'000'000'000;
      const auto found = state.find(name);
      const bool is_one =
          found != state.end() && found->second.numel() == 1 && found->second.scalar_type() == at::kLong;
      const auto value = is_one ? found->second.item<int64_t>() : -1;
      if (value >= 0 && value <= kMost) return value;
      throw InputError(format("the checkpoint's PowerSGD state has no valid \"{}\"", name), "comm_hook",
                       "use another checkpoint");
    };
    iteration_ = number("iteration");
    engine_.seed(options_.random_seed);
    drawn_ = 0;
    for (const auto drawn = number("drawn"); drawn_ < drawn;) next_seed();
    memory_.clear();
    loaded_ = state;  // each bucket takes its part when it is first used
  }

 private:
  struct Memory {
    at::Tensor error, p, q;
  };

  // A tensor of the checkpoint; undefined where there is none.
  at::Tensor take_loaded(const char* name, int64_t bucket, const at::TensorOptions& like) {
    const auto found = loaded_.extract(format("{}.{}", name, bucket));
    if (found.empty()) return {};
    return found.mapped().flatten().to(like, /*non_blocking=*/false, /*copy=*/true);
  }

  Memory& memory_of(const GradBucket& bucket, const Parts& parts) {
    const auto [found, is_new] = memory_.try_emplace(bucket.index());
    if (is_new && !loaded_.empty()) {
      const auto like = bucket.buffer().options();
      found->second.error = take_loaded("error", bucket.index(), like);
      found->second.q = take_loaded("q", bucket.index(), like);
      if (found->second.q.defined()) found->second.p = at::empty({total(parts, 1)}, like);
    }
    return found->second;
  }

  // The saved buckets may differ, for example after a change of ddp.bucket_cap_mb.
  void forget_what_does_not_fit(Memory& memory, const at::Tensor& input, const Parts& parts) {
    const bool fits = (!memory.error.defined() || memory.error.numel() == input.numel()) &&
                      (!memory.q.defined() || memory.q.numel() == total(parts, 2));
    if (fits) return;
    memory = {};
    if (!std::exchange(warned_, true) && group_->getRank() == 0)
      log::warning(
          "PowerSGD: the saved state does not match the current gradient buckets; its errors and Q are "
          "reset");
  }

  // Waits in place: chained in callbacks, as in Python, two buckets could start their collectives in an order
  // that differs from rank to rank.
  void sum_over_ranks(const at::Tensor& tensor) const {
    Tensors tensors{tensor};
    group_->allreduce(tensors)->wait();
  }

  void count(const GradBucket& bucket) {
    if (bucket.is_last()) ++iteration_;
  }

  int64_t rank_of(int64_t n, int64_t m) const { return std::min({n, m, options_.matrix_approximation_rank}); }

  Parts part(const Tensors& gradients) const {
    Parts parts;
    for (const auto& gradient : gradients) {
      // a scalar is one row
      const at::Tensor matrix = gradient.view({gradient.dim() ? gradient.size(0) : 1, -1});
      const auto n = matrix.size(0), m = matrix.size(1);
      const auto compressed = static_cast<double>((n + m) * rank_of(n, m));
      if (compressed * options_.min_compression_rate >= static_cast<double>(n * m)) {
        parts.uncompressed.push_back(gradient);
        continue;
      }
      auto same = std::find_if(parts.shapes.begin(), parts.shapes.end(),
                               [&](const Tensors& group) { return group[0].sizes() == matrix.sizes(); });
      if (same == parts.shapes.end()) same = parts.shapes.insert(same, Tensors{});
      same->push_back(matrix);
    }
    return parts;
  }

  Tensors batched(const Parts& parts) const {
    Tensors batches;
    for (const auto& matrices : parts.shapes) {
      if (options_.batch_tensors_with_same_shape && matrices.size() > 1) {
        batches.push_back(at::stack(matrices));
      } else {
        for (const auto& matrix : matrices) batches.push_back(matrix.unsqueeze(0));
      }
    }
    return batches;
  }

  // Low-rank factors for each batch, as views into one flat tensor; `dim` 1 for P (rows), 2 for Q (columns).
  Tensors views(const Tensors& batches, const at::Tensor& flat, int64_t dim) const {
    Tensors result;
    int64_t offset = 0;
    for (const auto& batch : batches) {
      const auto rank = rank_of(batch.size(1), batch.size(2));
      const auto size = batch.size(0) * batch.size(dim) * rank;
      result.push_back(flat.slice(0, offset, offset + size).view({batch.size(0), batch.size(dim), rank}));
      offset += size;
    }
    return result;
  }

  int64_t total(const Parts& parts, int64_t dim) const {
    int64_t size = 0;
    for (const auto& matrices : parts.shapes) {
      const auto n = matrices[0].size(0), m = matrices[0].size(1);
      size += static_cast<int64_t>(matrices.size()) * (dim == 1 ? n : m) * rank_of(n, m);
    }
    return size;
  }

  // numpy's RandomState(seed).randint(1'000'000'000): MT19937, masked to 30 bits, drawn again if too large.
  uint64_t next_seed() {
    ++drawn_;
    uint32_t value = 0;
    do value = engine_() & 0x3FFFFFFF;
    while (value > 999'999'999);
    return value;
  }

  // The same random start on every rank, another one at each use.
  void randomize(const Tensors& qs) {
    const auto generator = at::detail::createCPUGenerator(next_seed());
    for (const auto& q : qs) {
      q.copy_(at::randn(q.sizes(), generator, at::TensorOptions().dtype(q.scalar_type())));
      orthogonalize(q, options_.orthogonalization_epsilon);
    }
  }

  void reduce_uncompressed(const Tensors& tensors, const at::TensorOptions& like) const {
    Tensors flat;
    for (const auto& tensor : tensors) flat.push_back(tensor.view(-1));
    const at::Tensor all = flat.empty() ? at::empty({0}, like) : at::cat(flat);
    sum_over_ranks(all);
    all.div_(group_->getSize());
    int64_t offset = 0;
    for (const auto& tensor : tensors) {
      tensor.copy_(all.slice(0, offset, offset + tensor.numel()).view_as(tensor));
      offset += tensor.numel();
    }
  }

  void approximate(const Tensors& batches, Memory& memory) {
    const Tensors qs = views(batches, memory.q, 2);
    Tensors ps = views(batches, memory.p, 1);
    for (size_t i = 0; i < batches.size(); ++i) at::bmm_out(ps[i], batches[i], qs[i]);
    sum_over_ranks(memory.p);
    for (const auto& p : ps) orthogonalize(p, options_.orthogonalization_epsilon);
    for (size_t i = 0; i < batches.size(); ++i) {
      at::Tensor q = qs[i];
      at::bmm_out(q, batches[i].transpose(1, 2), ps[i]);
    }
    sum_over_ranks(memory.q);
    memory.q.div_(group_->getSize());
    for (size_t i = 0; i < batches.size(); ++i) {
      at::Tensor batch = batches[i];
      at::bmm_out(batch, ps[i], qs[i].transpose(1, 2));
    }
  }

  void unbatch(const Parts& parts, const Tensors& batches) const {
    if (!options_.batch_tensors_with_same_shape) return;
    for (size_t i = 0; i < batches.size(); ++i)
      for (size_t j = 0; batches[i].size(0) > 1 && j < parts.shapes[i].size(); ++j)
        parts.shapes[i][j].copy_(batches[i][static_cast<int64_t>(j)]);
  }

  at::Tensor compress(const GradBucket& bucket) {
    at::NoGradGuard no_grad;
    const at::Tensor input = bucket.buffer();
    const Parts parts = part(bucket.gradients());
    Memory& memory = memory_of(bucket, parts);
    forget_what_does_not_fit(memory, input, parts);
    at::Tensor exact;
    if (options_.use_error_feedback) {
      if (memory.error.defined()) input.add_(memory.error);
      exact = input.clone();
    }
    const Tensors batches = batched(parts);
    if (options_.warm_start && memory.q.defined()) {
      for (const auto& q : views(batches, memory.q, 2)) orthogonalize(q, options_.orthogonalization_epsilon);
    } else {
      memory.p = at::empty({total(parts, 1)}, input.options());
      memory.q = at::empty({total(parts, 2)}, input.options());
      randomize(views(batches, memory.q, 2));
    }
    reduce_uncompressed(parts.uncompressed, input.options());
    approximate(batches, memory);
    unbatch(parts, batches);
    if (options_.use_error_feedback) memory.error = exact - input;
    count(bucket);
    return input;
  }

  ProcessGroup group_;
  PowerSgdOptions options_;
  std::mt19937 engine_;
  int64_t drawn_ = 0;  // seeds
  int64_t iteration_ = 0;
  std::map<int64_t, Memory> memory_;  // by bucket
  HookState loaded_;                  // what no bucket has taken yet
  bool warned_ = false;
};

}  // namespace

CommHook powersgd(ProcessGroup group, PowerSgdOptions options) {
  auto state = std::make_shared<PowerSgd>(std::move(group), options);
  return {[state](GradBucket& bucket) { return (*state)(bucket); },
          HookMemory{.state = [state] { return state->state(); },
                     .load = [state](const HookState& loaded) { state->load(loaded); }}};
}

namespace {

CommHook make_powersgd(ProcessGroup group, const RowOptions& given) {
  PowerSgdOptions options;
  const auto take = [&given](const char* name, auto& value) { value = option(given, name, value); };
  take("matrix_approximation_rank", options.matrix_approximation_rank);
  take("start_powerSGD_iter", options.start_powerSGD_iter);
  take("min_compression_rate", options.min_compression_rate);
  take("use_error_feedback", options.use_error_feedback);
  take("warm_start", options.warm_start);
  take("orthogonalization_epsilon", options.orthogonalization_epsilon);
  take("batch_tensors_with_same_shape", options.batch_tensors_with_same_shape);
  options.random_seed = static_cast<uint32_t>(option(given, "random_seed", int64_t{0}));
  return powersgd(std::move(group), options);
}

}  // namespace

LOCKSTEP_COMM_HOOK(powersgd,
                   .help = "low-rank compression, with the names of Python's PowerSGDState as options",
                   .reads = {"options.matrix_approximation_rank", "options.start_powerSGD_iter",
                             "options.min_compression_rate", "options.use_error_feedback",
                             "options.warm_start", "options.orthogonalization_epsilon",
                             "options.batch_tensors_with_same_shape", "options.random_seed"},
                   .make = make_powersgd)

}  // namespace lockstep::hooks
