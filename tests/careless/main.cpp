// Programs in which rank 1 goes another way than the others: tests/e2e/test_careless.py. Library only.
#include <lockstep/base/error.h>
#include <lockstep/parallel/ddp.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <string>

struct Net : torch::nn::Module {
  torch::nn::Linear a{register_module("a", torch::nn::Linear(400, 300))};
  torch::Tensor forward(const torch::Tensor& x) { return a(x); }
};

void step(lockstep::DistributedDataParallel<Net>& model, bool around) {
  const auto x = torch::ones({2, 400});
  (around ? model.module()->forward(x) : model.forward(x)).sum().backward();
}

void train(const lockstep::Session& session, const std::string& careless) {
  const auto model = lockstep::ddp(Net(), session);
  const bool other = session.rank() == 1;
  for (int i = 0; i < 4; ++i) {
    if (other && careless == "leaves" && i == 2) break;
    if (other && careless == "skips" && i == 2) continue;
    if (other && careless == "throws") throw lockstep::InputError("rank 1 met a bad row", "row 7", "fix it");
    step(*model, other && careless == "bypasses" && i == 2);
  }
  lockstep::Mean mean;
  mean.add(1);
  session.all_reduce(mean);
}

int main(int, char** argv) {
  return lockstep::run([&] {
    const lockstep::Session session;
    train(session, argv[1]);
  });
}
