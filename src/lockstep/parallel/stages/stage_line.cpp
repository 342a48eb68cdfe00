#include "lockstep/parallel/stages/stage_line.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"

namespace lockstep::parallel {
namespace {

std::vector<Turn> one_f_one_b(int stages, int stage, int64_t micro_batches) {
  const int64_t warm_up = std::min<int64_t>(stages - stage - 1, micro_batches);
  std::vector<Turn> turns;
  for (int64_t i = 0; i < warm_up; ++i) turns.push_back({true, i});
  for (int64_t i = 0; i < micro_batches; ++i) {
    if (warm_up + i < micro_batches) turns.push_back({true, warm_up + i});
    turns.push_back({false, i});
  }
  return turns;
}

void add(std::vector<StageMessage>& messages, bool sends, const Turn& turn, int peer, int stages) {
  if (peer >= 0 && peer < stages) messages.push_back({sends, turn.forward, turn.micro_batch, peer});
}

}  // namespace

std::vector<StageStep> stage_steps(int stages, int stage, int64_t micro_batches) {
  const auto turns = one_f_one_b(stages, stage, micro_batches);
  std::vector<StageStep> steps(turns.size() + 1);
  for (size_t i = 0; i < turns.size(); ++i) {
    const int way = turns[i].forward ? 1 : -1;
    add(steps[i].messages, false, turns[i], stage - way, stages);
    add(steps[i + 1].messages, true, turns[i], stage + way, stages);
    steps[i].turn = turns[i];
  }
  return steps;
}

// least[s][n]: the most expensive of s stages that take the first n parts, with the best cut.
std::vector<size_t> cut_chain(const std::vector<int64_t>& costs, size_t stages) {
  const size_t parts = costs.size();
  std::vector<int64_t> before(parts + 1, 0);
  std::partial_sum(costs.begin(), costs.end(), before.begin() + 1);
  constexpr auto kNone = std::numeric_limits<int64_t>::max();
  std::vector<std::vector<int64_t>> least(stages + 1, std::vector<int64_t>(parts + 1, kNone));
  std::vector<std::vector<size_t>> begin(stages + 1, std::vector<size_t>(parts + 1, 0));
  least[0][0] = 0;
  for (size_t s = 1; s <= stages; ++s) {
    for (size_t n = s; n <= parts; ++n) {
      for (size_t last = s - 1; last < n; ++last) {
        const auto most = std::max(least[s - 1][last], before[n] - before[last]);
        if (most >= least[s][n]) continue;
        least[s][n] = most;
        begin[s][n] = last;
      }
    }
  }
  std::vector<size_t> sizes(stages);
  for (size_t s = stages, n = parts; s > 0; n = begin[s][n], --s) sizes[s - 1] = n - begin[s][n];
  return sizes;
}

namespace {

constexpr int64_t kMostDimensions = 14;
constexpr int64_t kHeader = 3 + 2 * kMostDimensions;
constexpr int kTag = 1;  // a neighbor's messages come in the order in which they were sent

// The bytes in memory order: a message is contiguous, and channels_last must arrive as channels_last.
at::Tensor flat(const at::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1});
}

// without groups a GPU's messages wait for each other (docs/decisions/0014)
bool knows_groups(const Team& line) {
  const auto backend = line.group()->getBackend(line.device().type());
  if (backend->supportsCoalescing()) return true;
  if (line.device().is_cpu()) return false;
  throw InputError(format("the backend {} cannot group messages, without which a pipeline on GPUs hangs",
                          backend->getBackendName()),
                   "launch.backend", "use nccl, or train on CPUs (launch.device: cpu)");
}

/// Messages that begin together. Always ended: an open group would block the backend's destructor.
class Group {
 public:
  Group(c10d::ProcessGroup& carrier, c10::DeviceType device) : carrier_(carrier), device_(device) {
    carrier_.startCoalescing(device_);
  }
  ~Group() {
    if (!is_open_) return;
    try {
      end();
    } catch (const std::exception& error) {
      log::debug(format("a group that failed: {}", error.what()));
    }
  }
  Group(Group&&) = delete;

  c10::intrusive_ptr<c10d::Work> end() {
    is_open_ = false;
    return carrier_.endCoalescing(device_);
  }

 private:
  c10d::ProcessGroup& carrier_;
  c10::DeviceType device_;
  bool is_open_ = true;
};

}  // namespace

StageLine::StageLine(Team line) : line_(std::move(line)), groups_(knows_groups(line_)) {
  if (groups_) connect();
}

// NCCL connects two ranks at their first message, and a pair of ranks in both directions at once. It fails if
// one rank's first group goes one way and the other's both ways (a single micro-batch).
void StageLine::connect() {
  std::vector<Parcel> parcels;
  for (const int peer : {stage() - 1, stage() + 1}) {
    if (peer < 0 || peer >= stages()) continue;
    for (const bool sends : {true, false})
      parcels.push_back({sends, peer, torch::zeros({1}, at::device(line_.device()))});
  }
  exchange(parcels);
  flush();
}

std::string StageLine::TensorForm::text() const {
  return format("{} {} with strides {}{}", c10::toString(dtype), c10::str(at::IntArrayRef(sizes)),
                c10::str(at::IntArrayRef(strides)), needs_gradient ? ", needs a gradient" : "");
}

StageLine::TensorForm StageLine::form_of(const at::Tensor& tensor) {
  return {tensor.scalar_type(), tensor.requires_grad(), tensor.sizes().vec(), tensor.strides().vec()};
}

at::Tensor StageLine::packed(const TensorForm& form) {
  std::vector<int64_t> numbers{static_cast<int64_t>(form.dtype), form.needs_gradient ? 1 : 0,
                               static_cast<int64_t>(form.sizes.size())};
  for (const auto& list : {form.sizes, form.strides}) numbers.insert(numbers.end(), list.begin(), list.end());
  numbers.resize(kHeader);
  return torch::tensor(numbers);
}

StageLine::TensorForm StageLine::unpacked(const at::Tensor& header) {
  const auto* numbers = header.const_data_ptr<int64_t>();
  const auto* sizes = numbers + 3;
  const auto dimensions = numbers[2];
  return {static_cast<at::ScalarType>(numbers[0]), numbers[1] != 0, Sizes(sizes, sizes + dimensions),
          Sizes(sizes + dimensions, sizes + 2 * dimensions)};
}

at::Tensor StageLine::dense(const at::Tensor& tensor) {
  if (tensor.dim() > kMostDimensions) {
    throw InputError(format("the output of a stage has {} dimensions", tensor.dim()), "parallel.pipeline",
                     format("cut the model where a tensor has at most {}", kMostDimensions));
  }
  return tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
}

at::Tensor StageLine::empty(const TensorForm& form) const {
  return at::empty_strided(form.sizes, form.strides, at::dtype(form.dtype).device(line_.device()));
}

StageLine::Key StageLine::key(const Sizes& batch) {
  return {torch::GradMode::is_enabled(), batch};
}

StageLine::Parcel StageLine::output(const at::Tensor& tensor, const Sizes& batch) {
  auto whole = dense(tensor.detach());
  auto form = form_of(whole);
  form.needs_gradient = tensor.requires_grad();
  const auto [known, is_new] = sent_forms_.try_emplace(key(batch), form);
  if (is_new) {
    const Parcel header{true, stage() + 1, packed(form)};
    sent_.push_back({post(header), {header.tensor}, false});
  }
  if (known->second != form)
    throw Error(format("the output of stage {} changed between batches", stage()),
                format("before: {}; now: {}", known->second.text(), form.text()),
                "cut the model elsewhere, make the output contiguous(), freeze parameters before the first "
                "batch, or train without parallel.pipeline");
  return {true, stage() + 1, whole};
}

StageLine::Parcel StageLine::input(const Sizes& batch) {
  auto known = received_forms_.find(key(batch));
  if (known == received_forms_.end()) {
    const Parcel header{false, stage() - 1, torch::empty({kHeader}, torch::kInt64)};
    post(header)->wait();
    known = received_forms_.emplace(key(batch), unpacked(header.tensor)).first;
  }
  return {false, stage() - 1, empty(known->second).requires_grad_(known->second.needs_gradient)};
}

// Autograd gives a dense leaf's gradient the leaf's layout, so nothing is copied here.
StageLine::Parcel StageLine::gradient_of(const at::Tensor& input) const {
  const auto& gradient = input.grad();
  if (gradient.defined() && gradient.strides() == input.strides()) return {true, stage() - 1, gradient};
  auto whole = torch::zeros_like(input.detach());
  if (gradient.defined()) whole.copy_(gradient);
  return {true, stage() - 1, whole};
}

StageLine::Parcel StageLine::gradient(const Sizes& batch) const {
  return {false, stage() + 1, empty(sent_forms_.at(key(batch)))};
}

StageLine::WorkPtr StageLine::post(const Parcel& parcel) const {
  std::vector<at::Tensor> tensors{flat(parcel.tensor.detach())};
  const auto& group = line_.group();
  return parcel.sends ? group->send(tensors, parcel.peer, kTag) : group->recv(tensors, parcel.peer, kTag);
}

// One Work for a group; one per message if the backend does not support groups.
std::vector<StageLine::PendingTransfer> StageLine::post_all(const std::vector<Parcel>& parcels) const {
  std::vector<PendingTransfer> posted;
  std::optional<Group> group;
  if (groups_) group.emplace(*line_.group(), line_.device().type());
  for (const auto& parcel : parcels) posted.push_back({post(parcel), {parcel.tensor}, !parcel.sends});
  if (!group) return posted;
  PendingTransfer whole{group->end(), {}, false};
  for (const auto& one : posted) {
    whole.tensors.insert(whole.tensors.end(), one.tensors.begin(), one.tensors.end());
    whole.receives |= one.receives;
  }
  return {whole};
}

void StageLine::exchange(const std::vector<Parcel>& parcels) {
  if (parcels.empty()) return;
  for (auto& posted : post_all(parcels)) {
    if (posted.receives) {
      posted.work->wait();
    } else {
      sent_.push_back(std::move(posted));
    }
  }
  release(unanswered());
}

// An output and a gradient for each micro-batch that a stage keeps alive, and one more. Older messages have
// been received, so waiting for them takes no time and frees their memory.
size_t StageLine::unanswered() const {
  return 2 * static_cast<size_t>(stages() - stage() + 1);
}

void StageLine::release(size_t kept) {
  for (; sent_.size() > kept; sent_.pop_front()) sent_.front().work->wait();
}

at::Tensor StageLine::from_last(const at::Tensor& mine, const Sizes& batch) {
  c10d::BroadcastOptions options;
  options.rootRank = stages() - 1;
  const auto share = [&](const at::Tensor& tensor) {
    std::vector<at::Tensor> tensors{tensor};
    line_.group()->broadcast(tensors, options)->wait();
  };
  const auto whole = is_last() ? dense(mine.detach()) : at::Tensor();
  auto known = result_forms_.find(key(batch));
  if (known == result_forms_.end()) {
    const auto header = is_last() ? packed(form_of(whole)) : torch::empty({kHeader}, torch::kInt64);
    share(header);
    known = result_forms_.emplace(key(batch), unpacked(header)).first;
  }
  auto result = is_last() ? whole : empty(known->second);
  share(flat(result));
  return result;
}

}  // namespace lockstep::parallel
