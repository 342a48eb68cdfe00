#include "trainer/step/evaluate.h"

#include <torch/types.h>
#include <torch/utils.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/data/loader.h"
#include "trainer/modes/model.h"
#include "trainer/step/step.h"

namespace lockstep::train {

namespace {

constexpr int64_t kMostPixels =
    96;  // along a side; a larger image is shown by every second pixel, or third, ...

bool is_worse(const WorstSample& a, const WorstSample& b) {
  return a.loss != b.loss ? a.loss > b.loss : a.number < b.number;
}

// Cross-entropy by hand: a row of ten costs less than one tensor operation.
WorstSample worst_sample(const float* row, int64_t classes, int64_t actual, int64_t number) {
  const auto predicted = std::max_element(row, row + classes) - row;
  double sum = 0;
  for (int64_t i = 0; i < classes; ++i) sum += std::exp(static_cast<double>(row[i] - row[predicted]));
  const double loss = std::log(sum) - static_cast<double>(row[actual] - row[predicted]);
  WorstSample sample = {loss, number, actual, predicted, 1 / sum};
  if (!std::isfinite(loss)) sample.loss = std::numeric_limits<double>::infinity(), sample.probability = 0;
  return sample;
}

std::string packed_samples(const std::vector<WorstSample>& samples) {
  auto all = nlohmann::json::array();
  for (const auto& s : samples)  // JSON has no infinity: it becomes null
    all.push_back({s.loss, s.number, s.actual, s.predicted, s.probability, s.shape, s.pixels});
  return all.dump();
}

void unpack(const std::string& text, std::vector<WorstSample>& samples) {
  for (const auto& s : nlohmann::json::parse(text))
    samples.push_back({s[0].is_null() ? std::numeric_limits<double>::infinity() : s[0].get<double>(), s[1],
                       s[2], s[3], s[4], s[5], s[6]});
}

std::vector<WorstSample> worst_of(const std::vector<std::string>& texts) {
  std::vector<WorstSample> all;
  for (const auto& text : texts) unpack(text, all);
  std::ranges::sort(all, is_worse);
  all.resize(std::min(all.size(), WorstSamples::kMost));
  return all;
}

// The sample's pixels as bytes, where it is an image of a size that a page can show.
void add_pixels(WorstSample& sample, const at::Tensor& input) {
  if (input.dim() != 4 || (input.size(1) != 1 && input.size(1) != 3)) return;
  const int64_t step = (std::max(input.size(2), input.size(3)) + kMostPixels - 1) / kMostPixels;
  const auto image = input[0].to(torch::kFloat).slice(1, 0, {}, step).slice(2, 0, {}, step);
  const auto low = image.min(), range = (image.max() - low).clamp_min(1e-12);
  const auto bytes = ((image - low) / range * 255).round().clamp(0, 255).to(torch::kUInt8).contiguous();
  sample.shape = bytes.sizes().vec();
  sample.pixels.assign(bytes.const_data_ptr<uint8_t>(), bytes.const_data_ptr<uint8_t>() + bytes.numel());
}

}  // namespace

void WorstSamples::offer(const WorstSample& sample) {
  if (kept_.size() == kMost && !is_worse(sample, kept_.back())) return;
  kept_.insert(std::ranges::upper_bound(kept_, sample, is_worse), sample);
  if (kept_.size() > kMost) kept_.pop_back();
}

void WorstSamples::add(const at::Tensor& output, const at::Tensor& target, at::ArrayRef<int64_t> indices) {
  if (output.dim() != 2 || target.dim() != 1 || target.scalar_type() != torch::kInt64) return;
  const auto rows = output.detach().to(torch::kFloat).contiguous();
  const auto truths = target.contiguous();
  const int64_t classes = rows.size(1);
  for (int64_t i = 0; i < rows.size(0) && i < static_cast<int64_t>(indices.size()); ++i) {
    const int64_t actual = truths.const_data_ptr<int64_t>()[i];
    if (actual < 0 || actual >= classes) continue;
    offer(worst_sample(rows.const_data_ptr<float>() + i * classes, classes, actual,
                       indices[static_cast<size_t>(i)]));
  }
}

// First who has the worst, then what those look like: 10,000 ranks do not send each other their images.
std::vector<WorstSample> WorstSamples::gather(const Team& team, const Dataset& set) const {
  const auto worst = worst_of(team.all_gather(packed_samples(kept_)));
  std::vector<WorstSample> mine;
  team.together([&] {
    for (const auto& sample : kept_) {
      if (!std::ranges::count(worst, sample.number, &WorstSample::number)) continue;
      mine.push_back(sample);
      add_pixels(mine.back(), set.get({sample.number}).input);
    }
  });
  return worst_of(team.all_gather(packed_samples(mine)));
}

namespace {

// Every rank counts with rank 0's statistics, which are the ones a checkpoint holds.
void share_buffers(const Team& team, Net& net) {
  if (!team.group()) return;
  for (auto& buffer : net.buffers()) {
    std::vector<at::Tensor> one{buffer};
    team.group()->broadcast(one)->wait();
  }
}

// Batches of the rank with the most of them: shares differ by a sample, and all ranks ask as often.
int64_t most_batches(int64_t samples, int world, int64_t batch_size) {
  const int64_t share = (samples + world - 1) / world;
  return (share + batch_size - 1) / batch_size;
}

}  // namespace

std::unique_ptr<Metrics> evaluate(const Team& team, Net& net, const Task& task, const TaskData& data,
                                  const Settings& settings, const StopEvaluation& cut_short,
                                  WorstSamples* worst) {
  const torch::NoGradGuard no_grad;
  const ShardSampler sampler(data.eval->size(), team.rank(), team.world());
  Loader loader(data.eval, sampler, loader_options(settings, team.device()));
  auto loss = loss_options(data, team.device());
  loss.reduction = at::Reduction::Sum;
  auto metrics = task.metrics(data);
  if (settings.ddp.broadcast_buffers) share_buffers(team, net);
  draw_base_seed();
  const EvaluationMode mode(net);
  const auto measure = [&](const Batch& batch) {
    const auto input = placed(net, batch.input, team.device(), settings.train.layout);
    const Autocast scope(team.device().type(), settings.train.precision);
    const auto output = net.forward(input);
    const auto target = batch.target.to(output.device());  // of the last stage
    if (loss.class_weights.defined()) loss.class_weights = loss.class_weights.to(output.device());
    const LossSum losses{task.loss(output, target, loss).item<double>(),
                         weight_of(target, loss.class_weights)};
    const auto answer = output.to(torch::kCPU);
    metrics->add(answer, batch.target, batch.indices, losses);
    if (worst) worst->add(answer, batch.target, batch.indices);
  };
  auto batch = loader.begin();
  const int64_t rounds = most_batches(data.eval->size(), team.world(), settings.data.batch_size);
  for (int64_t round = 1; round <= rounds; ++round) {
    if (batch != loader.end()) {
      measure(*batch);
      ++batch;
    }
    if (cut_short && cut_short(round)) return nullptr;
  }
  auto sums = metrics->sums();
  team.sum(sums);
  return metrics;
}

double weight_of(const at::Tensor& target, const at::Tensor& class_weights) {
  if (!class_weights.defined()) return static_cast<double>(target.size(0));
  return class_weights.index_select(0, target).sum(torch::kFloat64).item<double>();
}

bool is_evaluation_scheduled(const TrainSettings& train, int64_t epoch) {
  return train.eval_every > 0 && (epoch + 1) % train.eval_every == 0;
}

std::optional<double> value_of(const std::vector<std::pair<std::string, double>>& values,
                               const std::string& name) {
  for (const auto& [key, value] : values)
    if (key == name) return value;
  return std::nullopt;
}

}  // namespace lockstep::train
