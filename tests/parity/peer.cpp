// parity_peer CASES OUT [BACKEND]: runs every case of this world size under lockstep's DDP and writes
// OUT/NAME.RANK.bin (losses, parameters, buffers) and OUT/NAME.RANK.txt (buckets). peer.py is its twin.
#include <torch/nn/functional/loss.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/launch/process/runtime.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/ddp.h"
#include "parity/nets.h"

namespace lockstep::parity {
namespace {

// One line of cases.txt.
struct Case {
  std::string name;
  std::map<std::string, std::string> values;

  std::string text(const std::string& key, const std::string& otherwise) const {
    const auto found = values.find(key);
    return found == values.end() ? otherwise : found->second;
  }
  double number(const std::string& key, double otherwise) const {
    const auto found = values.find(key);
    return found == values.end() ? otherwise : std::strtod(found->second.c_str(), nullptr);
  }
  bool flag(const std::string& key, bool otherwise = false) const { return number(key, otherwise) != 0; }
  bool has(const std::string& key) const { return values.count(key) > 0; }

  std::vector<double> list(const std::string& key) const {
    std::vector<double> numbers;
    std::istringstream items(text(key, ""));
    for (std::string item; std::getline(items, item, ',');)
      numbers.push_back(std::strtod(item.c_str(), nullptr));
    return numbers;
  }
  bool runs_in(int world) const { return std::ranges::count(list("worlds"), world) > 0; }
};

std::vector<Case> read_cases(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::vector<Case> cases;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Case one;
    if (!(words >> one.name) || one.name[0] == '#') continue;
    for (std::string word; words >> word;)
      one.values[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    cases.push_back(one);
  }
  return cases;
}

using Model = DistributedDataParallel<ParityNet>;

DdpOptions options_of(const Case& one) {
  DdpOptions options;
  options.find_unused_parameters = one.flag("find_unused");
  options.static_graph = one.flag("static");
  options.gradient_as_bucket_view = one.flag("view");
  options.broadcast_buffers = one.flag("buffers", true);
  options.skip_all_reduce_unused_params = one.flag("skip_unused");
  options.batched_grad_copy = one.flag("batched_copy");
  options.lazy_bucket_allocation = one.flag("lazy");
  if (one.has("forward_sync")) options.forward_sync_buffers = one.flag("forward_sync");
  if (one.has("cap")) options.bucket_cap_mb = one.number("cap", 25);
  options.bucket_cap_mb_list = one.list("cap_list");
  return options;
}

CommHook powersgd_of(const Case& one, const ProcessGroup& group) {
  hooks::PowerSgdOptions options;
  options.matrix_approximation_rank = static_cast<int64_t>(one.number("rank", 1));
  options.start_powerSGD_iter = static_cast<int64_t>(one.number("start", 2));
  options.warm_start = one.flag("warm", true);
  options.use_error_feedback = one.flag("feedback", true);
  options.batch_tensors_with_same_shape = one.flag("batched");
  options.orthogonalization_epsilon = one.number("epsilon", 0);
  options.random_seed = static_cast<uint32_t>(one.number("seed", 0));
  return hooks::powersgd(group, options);
}

CommHook hook_of(const Case& one, const ProcessGroup& group) {
  const std::string name = one.text("hook", "none");
  if (name == "none") return {};
  if (name == "powersgd") return powersgd_of(one, group);
  if (name == "builtin_allreduce") return hooks::allreduce(group);
  if (name == "builtin_fp16") return hooks::fp16_compress(group);
  if (name == "fp16_wrapper") return hooks::fp16_compress_wrapper(hooks::allreduce(group));
  if (name == "user")
    return [group](GradBucket& bucket) {
      return hooks::then(hooks::all_reduce(group, bucket.buffer().mul_(0.5)),
                         [](at::Tensor sum) { return sum.mul_(0.25); });
    };
  return hooks::by_name(name, group);
}

struct Sample {
  at::Tensor input, target;
};

Sample sample(const ParityNet& net, int64_t number, int rank, int64_t batch) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(1000 + 10 * number + rank));
  std::vector<int64_t> shape = net.input_shape();
  shape.insert(shape.begin(), batch);
  auto input =
      net.takes_indices() ? at::randint(0, 20, shape, generator, at::kLong) : at::randn(shape, generator);
  return {input, at::randint(0, net.classes(), {batch}, generator, at::kLong)};
}

class Run {
 public:
  Run(const Case& one, const ProcessGroup& group) : case_(one), rank_(group->getRank()) {
    torch::manual_seed(10 + rank_);  // ranks differ: DDP has to set them to rank 0's
    net_ = make_net(one.text("model", "mlp"));
    model_ = ddp(net_, group, options_of(one));
    if (CommHook hook = hook_of(one, group))
      model_->register_comm_hook(std::move(hook), one.text("hook", ""));
    if (one.text("optim", "sgd") != "plain") optimizer_ = make_optimizer(optim_of(one), model_->parameters());
    torch::manual_seed(77 + rank_);
  }

  void train() {
    if (!case_.flag("join")) return steps(0);
    model_->join([this] { steps(rank_); },
                 {.divide_by_initial_world_size = case_.flag("divide_by_initial", true)});
  }

  void write(const std::string& stem) const {
    std::ofstream file(stem + ".bin", std::ios::binary);
    const auto put = [&file](const at::Tensor& tensor) {
      const at::Tensor whole = tensor.detach().contiguous();
      file.write(static_cast<const char*>(whole.const_data_ptr()),
                 static_cast<std::streamsize>(whole.nbytes()));
    };
    if (!losses_.empty()) put(at::stack(losses_));
    for (const auto& [name, parameter] : model_->named_parameters()) put(parameter);
    for (const auto& buffer : net_->buffers()) put(buffer);
    std::ofstream text(stem + ".txt");
    for (const auto& bucket : model_->bucket_names()) text << bucket.size() << "\n";
  }

 private:
  static OptimSettings optim_of(const Case& one) {
    OptimSettings settings;
    settings.name = one.text("optim", "sgd");
    settings.lr = one.number("lr", 0.05);
    settings.momentum = 0.9;
    settings.weight_decay = settings.name == "adamw" ? 0.01 : 0;
    return settings;
  }

  void steps(int more) {
    const auto count = static_cast<int64_t>(case_.number("steps", 6)) + more;
    for (int64_t step = 0; step < count; ++step) {
      const auto micros = static_cast<int64_t>(case_.number("accumulate", 1));
      for (int64_t micro = 0; micro + 1 < micros; ++micro) {
        const auto local = model_->no_sync();
        forward_backward(step * micros + micro, step, count);
      }
      forward_backward(step * micros + micros - 1, step, count);
      update();
    }
  }

  void forward_backward(int64_t number, int64_t step, int64_t count) {
    auto batch = static_cast<int64_t>(case_.number("batch", 8));
    if (case_.flag("uneven_batch") && step + 1 == count) batch -= 1 + rank_;
    const int64_t pick = (number + rank_) % 3;
    const Sample data = sample(*net_, number, rank_, batch);
    const auto outputs = model_->forward(data.input, pick);
    auto loss = torch::nn::functional::cross_entropy(outputs[0], data.target);
    if (outputs.size() > 1 && pick == 0) loss = loss + outputs[1].square().mean();
    losses_.push_back(loss.detach());
    loss.backward();
  }

  void update() {
    if (optimizer_) {
      optimizer_->step();
    } else {
      at::NoGradGuard no_grad;
      for (auto& parameter : model_->parameters())
        parameter.add_(parameter.grad(), -case_.number("lr", 0.05));
    }
    model_->zero_grad(case_.flag("set_to_none", true));
  }

  const Case& case_;
  int rank_;
  std::shared_ptr<ParityNet> net_;
  std::shared_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<at::Tensor> losses_;
};

void run_all(const std::string& cases, const std::string& out, const std::string& backend) {
  at::set_num_threads(1);
  launch::Runtime runtime;
  const auto group = comm::connect(runtime, {.backend = backend, .timeout = std::chrono::seconds(60)});
  std::filesystem::create_directories(out);
  for (const auto& one : read_cases(cases)) {
    if (!one.runs_in(group->getSize())) continue;
    Run run(one, group);
    run.train();
    run.write(out + "/" + one.name + "." + std::to_string(group->getRank()));
  }
}

}  // namespace
}  // namespace lockstep::parity

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "parity_peer CASES OUT [BACKEND]\n"), 2;
  try {
    lockstep::parity::run_all(argv[1], argv[2], argc > 3 ? argv[3] : "gloo");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "parity_peer: %s\n", lockstep::describe(error).c_str());
    return 1;
  }
}
