#pragma once
// What a fragment in the docs may speak of without having made it. Nothing here has a body: fragments are
// compiled only.

#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace given {

struct Net : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& input);
  torch::Tensor encode(const torch::Tensor& input);
};
struct PairNet : torch::nn::Module {
  torch::Tensor forward(const std::vector<torch::Tensor>& both);
};
using ToyModel = Net;
using PimaNetImpl = Net;
TORCH_MODULE(PimaNet);

extern lockstep::Session& session;
extern lockstep::ProcessGroup group;
extern std::shared_ptr<Net> net;
extern std::shared_ptr<lockstep::DistributedDataParallel<Net>> model;
extern std::shared_ptr<lockstep::DistributedDataParallel<PairNet>> pair_model;
extern std::shared_ptr<lockstep::Dataset> samples;
extern lockstep::Loader batches;
extern std::vector<lockstep::Batch> my_batches;
extern torch::Tensor a, b, inputs, labels, loss;
extern std::vector<torch::Tensor> weights, biases;
extern torch::optim::SGD& optimizer;
extern int64_t steps, epochs, size;

torch::Tensor loss_of(const torch::Tensor& output);
void step(lockstep::Batch& batch);
void read_rows(torch::Tensor& x, torch::Tensor& y, const std::map<std::string, std::string>& options);

}  // namespace given
