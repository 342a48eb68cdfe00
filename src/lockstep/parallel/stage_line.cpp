#include "lockstep/parallel/stage_line.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::parallel {
namespace {

constexpr int64_t kMostDimensions = 14;
constexpr int64_t kHeader = 3 + 2 * kMostDimensions;

// The bytes as they lie: a gloo message is contiguous, and channels_last has to arrive as channels_last.
at::Tensor flat(const at::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1});
}

}  // namespace

StageLine::Form StageLine::form_of(const at::Tensor& tensor) {
  return {tensor.scalar_type(), tensor.requires_grad(), tensor.sizes().vec(), tensor.strides().vec()};
}

at::Tensor StageLine::packed(const Form& form) {
  std::vector<int64_t> numbers{static_cast<int64_t>(form.dtype), form.needs_gradient ? 1 : 0,
                               static_cast<int64_t>(form.sizes.size())};
  for (const auto& list : {form.sizes, form.strides}) numbers.insert(numbers.end(), list.begin(), list.end());
  numbers.resize(kHeader);
  return torch::tensor(numbers);
}

StageLine::Form StageLine::unpacked(const at::Tensor& header) {
  const auto* numbers = header.const_data_ptr<int64_t>();
  const auto* sizes = numbers + 3;
  const auto dimensions = numbers[2];
  return {static_cast<at::ScalarType>(numbers[0]), numbers[1] != 0, Sizes(sizes, sizes + dimensions),
          Sizes(sizes + dimensions, sizes + 2 * dimensions)};
}

at::Tensor StageLine::dense(const at::Tensor& tensor) {
  if (tensor.dim() > kMostDimensions) {
    throw InputError(format("a stage gives a tensor of {} dimensions", tensor.dim()), "parallel.pipeline",
                     format("cut the model where at most {} are enough", kMostDimensions));
  }
  return tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
}

at::Tensor StageLine::empty(const Form& form) const {
  return at::empty_strided(form.sizes, form.strides, at::dtype(form.dtype).device(line_.device()));
}

StageLine::Key StageLine::key(Way way, const Sizes& batch) const {
  return {way, torch::GradMode::is_enabled(), batch};
}

void StageLine::post(int to, Way way, const at::Tensor& tensor) {
  std::vector<at::Tensor> tensors{tensor};
  sent_[way].push_back({line_.group()->send(tensors, to, static_cast<int>(way)), tensor});
}

void StageLine::send(int to, Way way, const at::Tensor& tensor, const Sizes& batch) {
  auto whole = dense(tensor.detach());
  auto form = form_of(whole);
  form.needs_gradient = tensor.requires_grad();
  const auto [known, is_new] = sent_forms_.try_emplace(key(way, batch), form);
  if (is_new) post(to, way, packed(form));
  if (known->second != form) {
    throw Error("the shape of what a stage of the pipeline gives changed from batch to batch",
                format("stage {}: {} after {}", stage(), c10::str(whole.sizes()),
                       c10::str(at::IntArrayRef(known->second.sizes))),
                "a stage's output may depend on its input's shape alone: cut elsewhere, or train without "
                "parallel.pipeline");
  }
  post(to, way, flat(whole));
}

at::Tensor StageLine::receive(int from, Way way, const Sizes& batch) {
  const auto take = [&](const at::Tensor& into) {
    std::vector<at::Tensor> tensors{into};
    line_.group()->recv(tensors, from, static_cast<int>(way))->wait();
  };
  auto known = known_forms_.find(key(way, batch));
  if (known == known_forms_.end()) {
    const auto header = torch::empty({kHeader}, torch::kInt64);
    take(header);
    known = known_forms_.emplace(key(way, batch), unpacked(header)).first;
  }
  auto tensor = empty(known->second);
  take(flat(tensor));
  return tensor.requires_grad_(known->second.needs_gradient);
}

void StageLine::send_output(const at::Tensor& output, const Sizes& batch) {
  send(stage() + 1, Way::output, output, batch);
}

at::Tensor StageLine::receive_input(const Sizes& batch) {
  auto input = receive(stage() - 1, Way::output, batch);
  release(Way::gradient, unanswered());
  return input;
}

void StageLine::send_gradient(const at::Tensor& gradient, const Sizes& batch) {
  send(stage() - 1, Way::gradient, gradient, batch);
}

at::Tensor StageLine::receive_gradient(const Sizes& batch) {
  auto gradient = receive(stage() + 1, Way::gradient, batch);
  release(Way::output, unanswered());
  return gradient;
}

// So many messages may be under way, each with its header: a stage has no more micro-batches alive. Older
// ones were answered, so that waiting for them takes no time and frees their memory.
size_t StageLine::unanswered() const {
  return 2 * static_cast<size_t>(stages() - stage() + 1);
}

void StageLine::release(Way way, size_t kept) {
  auto& sent = sent_[way];
  for (; sent.size() > kept; sent.pop_front()) sent.front().work->wait();
}

void StageLine::flush() {
  for (auto& [way, sent] : sent_) release(way, 0);
}

at::Tensor StageLine::from_last(const at::Tensor& mine, const Sizes& batch) {
  c10d::BroadcastOptions options;
  options.rootRank = stages() - 1;
  const auto share = [&](const at::Tensor& tensor) {
    std::vector<at::Tensor> tensors{tensor};
    line_.group()->broadcast(tensors, options)->wait();
  };
  const auto whole = is_last() ? dense(mine.detach()) : at::Tensor();
  const auto place = key(Way::result, batch);
  auto known = known_forms_.find(place);
  if (known == known_forms_.end()) {
    const auto header = is_last() ? packed(form_of(whole)) : torch::empty({kHeader}, torch::kInt64);
    share(header);
    known = known_forms_.emplace(place, unpacked(header)).first;
  }
  auto result = is_last() ? whole : empty(known->second);
  share(flat(result));
  return result;
}

}  // namespace lockstep::parallel
