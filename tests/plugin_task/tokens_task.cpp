// Texts as a test has tokenized them, for bert: `task.options.file` holds "input", int64 [texts, 3, tokens],
// and "target". A batch is cut to its longest text.
#include <ATen/ATen.h>

#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/tasks/task.h"

namespace {

class Tokens : public lockstep::Dataset {
 public:
  Tokens(at::Tensor input, at::Tensor target) : input_(std::move(input)), target_(std::move(target)) {}
  int64_t size() const override { return input_.size(0); }
  lockstep::Batch get(at::ArrayRef<int64_t> indices, bool) const override {
    const auto rows = at::tensor(indices);
    const auto input = input_.index_select(0, rows);
    const auto longest = input.select(1, 2).sum(1).max().item<int64_t>();
    return {.input = input.narrow(2, 0, longest).contiguous(), .target = target_.index_select(0, rows)};
  }

 private:
  at::Tensor input_, target_;
};

class TokensTask : public lockstep::Task {
 public:
  lockstep::TaskData data(const lockstep::TaskConfig& settings, const lockstep::NodeShare&) override {
    const auto file = lockstep::read_safetensors(settings.task.options.at("file"));
    const auto input = lockstep::get(file, "input").toTensor();
    lockstep::TaskData data;
    data.train = std::make_shared<Tokens>(input, lockstep::get(file, "target").toTensor());
    data.eval = data.train;
    data.input_shape = {3, input.size(2)};
    data.class_names = {"entailment", "neutral", "contradiction"};
    return data;
  }
  std::optional<lockstep::TaskMemory> memory() const override { return lockstep::TaskMemory{}; }
};

}  // namespace

LOCKSTEP_TASK(TokensTask)
