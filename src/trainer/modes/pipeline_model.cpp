// Models whose stages lie on different ranks: parallel.pipeline.
#include "trainer/modes/model.h"

#include <ATen/core/Tensor.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/collective/share_tree.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/models/chain.h"
#include "lockstep/parallel/ddp.h"
#include "lockstep/parallel/ddp_core.h"
#include "lockstep/parallel/module_tensors.h"
#include "lockstep/parallel/stages/stage_line.h"
#include "lockstep/parallel/sync_batch_norm.h"
#include "lockstep/parallel/team.h"

namespace lockstep::train {
namespace {

// How a model is cut into the stages of a pipeline: which parts and which tensors each stage holds.

// The whole model and its stages, the same on every rank.
struct Stages {
  std::vector<std::vector<Part>> parts;  // of each stage
  std::vector<std::string> parameters;   // of the whole model, each once, in Python's order
  std::vector<int> owner_of_parameter;   // the stage that holds it
  Tree shapes;                           // its state dict, on the meta device
  std::vector<int> owner_of_entry;       // of that dict's entries, in their order

  // "fc1, fc2 (401,536 parameters)", of each stage.
  std::vector<std::string> words(const Net& net) const;
};

constexpr const char* kKey = "parallel.pipeline";

bool holds(const Part& part, const std::string& name) {
  return name.starts_with(part.name) && name.size() > part.name.size() && name[part.name.size()] == '.';
}

int64_t numbers_in(const Part& part, const std::vector<parallel::NamedTensor>& parameters) {
  int64_t count = 0;
  for (const auto& [name, tensor] : parameters) count += holds(part, name) ? tensor.numel() : 0;
  return count;
}

std::vector<Part> chain_of(Net& net) {
  auto* chain = dynamic_cast<Chain*>(&net);
  if (chain) return chain->chain();
  throw InputError("this model is not a chain of parts, so a pipeline cannot split it into stages", kKey,
                   "use simple_cnn, mlp or pima_net, or derive your model from lockstep::Chain as well");
}

// What has no parameters goes with the part before it, the first with the one behind.
std::vector<size_t> with_parameters(const std::vector<int64_t>& counts) {
  std::vector<size_t> sizes;
  size_t waiting = 0;
  for (const auto count : counts) {
    if (count > 0) {
      sizes.push_back(std::exchange(waiting, 0) + 1);
    } else if (sizes.empty()) {
      ++waiting;
    } else {
      ++sizes.back();
    }
  }
  return sizes;
}

std::vector<std::vector<Part>> cut(const std::vector<Part>& parts, const std::vector<int64_t>& counts,
                                   size_t stages) {
  const auto groups = with_parameters(counts);
  if (groups.size() < stages) {
    std::vector<std::string> names;
    for (const auto& part : parts) names.push_back(part.name);
    throw InputError(format("{} stages, but the model has {} with parameters: {}", stages,
                            base::counted(std::ssize(groups), "part"), base::join(names, ", ")),
                     kKey, format("set parallel.pipeline to at most {}", groups.size()));
  }
  std::vector<int64_t> costs;
  auto count = counts.begin();
  for (const auto size : groups) {
    costs.push_back(std::accumulate(count, count + static_cast<ptrdiff_t>(size), int64_t{0}));
    count += static_cast<ptrdiff_t>(size);
  }
  std::vector<std::vector<Part>> result;
  auto part = parts.begin();
  auto group = groups.begin();
  for (const auto taken : parallel::cut_chain(costs, stages)) {
    const auto end = part + static_cast<ptrdiff_t>(
                                std::accumulate(group, group + static_cast<ptrdiff_t>(taken), size_t{0}));
    result.emplace_back(part, end);
    part = end;
    group += static_cast<ptrdiff_t>(taken);
  }
  return result;
}

// What is in no part, an unused branch say, is the last stage's.
int owner_of(const std::vector<std::vector<Part>>& stages, const std::string& name) {
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    for (const auto& part : stages[stage])
      if (holds(part, name)) return static_cast<int>(stage);
  }
  return static_cast<int>(stages.size()) - 1;
}

void refuse_shared(const Net& net, const std::vector<std::vector<Part>>& stages) {
  std::map<const void*, std::string> names;
  for (const auto& item : net.named_parameters()) {
    const auto [first, is_new] = names.emplace(item.value().unsafeGetTensorImpl(), item.key());
    if (is_new || owner_of(stages, first->second) == owner_of(stages, item.key())) continue;
    throw InputError(format("{} and {} are the same parameter, in two stages", first->second, item.key()),
                     kKey, "use fewer stages, or a model without shared parameters");
  }
}

std::vector<std::string> Stages::words(const Net& net) const {
  const auto named = parallel::unique_parameters(net);
  std::vector<std::string> result;
  for (size_t stage = 0; stage < parts.size(); ++stage) {
    std::vector<std::string> names;
    for (const auto& part : parts[stage]) names.push_back(part.name);
    int64_t count = 0;
    for (size_t i = 0; i < named.size(); ++i)
      if (owner_of_parameter[i] == static_cast<int>(stage)) count += named[i].tensor.numel();
    result.push_back(format("{} ({} parameters)", base::join(names, ", "), count));
  }
  return result;
}

// Cuts where the largest stage has the fewest parameters. InputError where the model is no chain, has too few
// parts, or shares a parameter between two stages.
Stages cut_into_stages(Net& net, int stages) {
  const auto parts = chain_of(net);
  const auto named = parallel::unique_parameters(net);
  std::vector<int64_t> counts;
  for (const auto& part : parts) counts.push_back(numbers_in(part, named));
  Stages result;
  result.parts = cut(parts, counts, static_cast<size_t>(stages));
  refuse_shared(net, result.parts);
  for (const auto& [name, tensor] : named) {
    result.parameters.push_back(name);
    result.owner_of_parameter.push_back(owner_of(result.parts, name));
  }
  result.shapes = make_dict();
  for (const auto& [name, value] : items(module_state_dict(net))) {
    put(result.shapes, name, at::empty_like(value.toTensor().detach(), at::kMeta));
    result.owner_of_entry.push_back(owner_of(result.parts, name.toStringRef()));
  }
  return result;
}

// One stage of a model as a Net: it holds this stage's parameters under the whole model's names, and its
// forward is the whole pipeline's.

class StageNet : public Net {
 public:
  // Takes the model over: the other stages' tensors are let go.
  StageNet(std::shared_ptr<Net> whole, const Stages& stages, parallel::StageLine& line);

  // Through all stages, the same output on each. Collective along the line; without gradients.
  torch::Tensor forward(const torch::Tensor& input) override;
  // This stage's parts alone.
  torch::Tensor own_forward(torch::Tensor x) const;
  void train(bool on = true) override;

 private:
  torch::Tensor received(const std::vector<int64_t>& batch);
  void adopt(const std::string& name, const at::Tensor& tensor, bool is_parameter);

  std::shared_ptr<Net> whole_;
  std::vector<Part> parts_;
  parallel::StageLine& line_;
};

StageNet::StageNet(std::shared_ptr<Net> whole, const Stages& stages, parallel::StageLine& line)
    : whole_(std::move(whole)), parts_(stages.parts.at(static_cast<size_t>(line.stage()))), line_(line) {
  const torch::NoGradGuard no_grad;
  std::map<std::string, int> owners;
  size_t place = 0;
  for (const auto& [name, shape] : items(stages.shapes))
    owners[name.toStringRef()] = stages.owner_of_entry[place++];
  const auto take = [&](const auto& named, bool is_parameter) {
    for (const auto& item : named) {
      const auto& tensor = item.value();
      if (owners.at(item.key()) == line.stage()) {
        adopt(item.key(), tensor, is_parameter);
      } else {
        tensor.set_data(at::empty({0}, tensor.options()));
      }
    }
  };
  take(whole_->named_parameters(), true);
  take(whole_->named_buffers(), false);
}

// The modules that its name goes through stand here, too, without their code.
void StageNet::adopt(const std::string& name, const at::Tensor& tensor, bool is_parameter) {
  torch::nn::Module* module = this;
  size_t begin = 0;
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', begin)) {
    const auto child = name.substr(begin, dot - begin);
    const auto children = module->named_children();
    module = children.contains(child)
                 ? children[child].get()
                 : module->register_module(child, std::make_shared<torch::nn::Module>(child)).get();
    begin = dot + 1;
  }
  const auto own = name.substr(begin);
  if (is_parameter) {
    module->register_parameter(own, tensor, tensor.requires_grad());
  } else {
    module->register_buffer(own, tensor);
  }
}

torch::Tensor StageNet::own_forward(torch::Tensor x) const {
  for (const auto& part : parts_) x = part.forward(x);
  return x;
}

torch::Tensor StageNet::received(const std::vector<int64_t>& batch) {
  auto input = line_.input(batch);
  line_.exchange({input});
  return input.tensor;
}

torch::Tensor StageNet::forward(const torch::Tensor& input) {
  const auto batch = input.sizes().vec();
  const auto output = own_forward(line_.is_first() ? input : received(batch));
  if (!line_.is_last()) line_.exchange({line_.output(output, batch)});
  const auto result = line_.from_last(output, batch);
  line_.flush();
  return result;
}

void StageNet::train(bool on) {
  torch::nn::Module::train(on);
  whole_->train(on);
}

// The whole model's numbers of a stage's parameters, in the stage's order.
std::vector<int64_t> parameters_of_stage(int stage, const Stages& stages) {
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < stages.owner_of_parameter.size(); ++i)
    if (stages.owner_of_parameter[i] == stage) numbers.push_back(static_cast<int64_t>(i));
  return numbers;
}

// The one group's options over so many parameters; the order of its keys stays.
Tree group_over(const Tree& groups, size_t parameters) {
  const auto list = elements(groups);
  auto group = make_dict();
  for (const auto& [key, value] : items(list.at(0))) put(group, key, value);
  auto indices = make_list();
  for (size_t i = 0; i < parameters; ++i) append(indices, static_cast<int64_t>(i));
  put(group, "params", indices);
  return make_list({group});
}

void refuse_other(const Tree& whole, size_t parameters) {
  const auto groups = elements(get(whole, "param_groups"));
  const auto there = groups.empty() ? 0 : elements(get(groups[0], "params")).size();
  if (groups.size() == 1 && there == parameters) return;
  throw InputError(
      format(
          "the checkpoint's optimizer has {} and {} parameters, but this model has 1 group and {} parameters",
          base::counted(std::ssize(groups), "parameter group"), there, parameters),
      "optimizer.param_groups", "use the config that the checkpoint was trained with");
}

// The ranks of a line hold a stage each.
class StageParts : public ModelParts {
 public:
  StageParts(const Team& line, const Stages& stages) : line_(line), stages_(stages) {}

  const Team& team() const override { return line_; }

  Tree whole_state_dict(const Tree& own) const override {
    const auto all = checkpoint::gather_trees(line_, own);
    auto whole = make_dict();
    if (all.empty()) return whole;
    size_t place = 0;
    for (const auto& [name, shape] : items(stages_.shapes)) {
      const auto stage = static_cast<size_t>(stages_.owner_of_entry[place++]);
      put(whole, name, get(all.at(stage), name.toStringRef()));
    }
    return whole;
  }

  Tree own_state_dict(const Tree& own, const Tree& whole, const std::string& file) const override {
    check_state_dict(stages_.shapes, whole, file);
    auto dict = make_dict();
    for (const auto& [name, tensor] : items(own)) put(dict, name, *find(whole, name));
    return dict;
  }

  Tree whole_optimizer(const Tree& own) const override {
    const auto all = checkpoint::gather_trees(line_, own);
    if (all.empty()) return make_dict();
    std::map<int64_t, Tree> states;
    for (int stage = 0; stage < line_.world(); ++stage) {
      const auto numbers = parameters_of_stage(stage, stages_);
      for (const auto& [index, state] : items(get(all[static_cast<size_t>(stage)], "state")))
        states.emplace(numbers.at(static_cast<size_t>(as_int(index, "state"))), state);
    }
    auto whole = make_dict();
    for (const auto& [index, state] : states) put(whole, index, state);
    return make_dict({{"state", whole},
                      {"param_groups", group_over(get(own, "param_groups"), stages_.parameters.size())}});
  }

  Tree own_optimizer(const Tree& whole) const override {
    refuse_other(whole, stages_.parameters.size());
    const auto theirs = elements(get(elements(get(whole, "param_groups"))[0], "params"));
    const auto numbers = parameters_of_stage(line_.rank(), stages_);
    const auto states = get(whole, "state");
    auto own = make_dict();
    for (size_t i = 0; i < numbers.size(); ++i)
      if (const auto state = find(states, theirs.at(static_cast<size_t>(numbers[i]))))
        put(own, static_cast<int64_t>(i), *state);
    return make_dict(
        {{"state", own}, {"param_groups", group_over(get(whole, "param_groups"), numbers.size())}});
  }

  // Each at its place among the whole model's parameters, so that their sum has the unsplit model's bits.
  at::Tensor whole_norms(const std::vector<at::Tensor>& own) const override {
    const auto count = static_cast<int64_t>(stages_.parameters.size());
    std::vector<at::Tensor> sums{torch::zeros({count}), torch::zeros({count})};  // is there one; the norm
    size_t next = 0;
    for (const auto number : parameters_of_stage(line_.rank(), stages_)) {
      const auto& norm = own.at(next++);
      if (!norm.defined()) continue;
      sums[0][number] = 1;
      sums[1][number] = norm;
    }
    line_.sum(sums);
    return sums[1].masked_select(sums[0] > 0).to(line_.device());  // where the gradients are
  }

 private:
  const Team line_;
  const Stages stages_;
};

// How long the stages of a pipeline wait, measured on this rank, beside what the formula says. On GPUs the
// formula alone: a host's clock sees when work is handed to a GPU, not when it is done.
struct Bubble {
  double busy = 0,
         elapsed = 0;  // seconds in batches; the first, which pays for libtorch's start, is not counted
  int64_t batches = 0;

  // For the log, of each stage the mean over the model's copies; empty before the second batch. Collective.
  std::string words(const Mesh& mesh, int64_t micro_batches) const {
    const auto stages = static_cast<size_t>(mesh.pipeline().world());
    const double waits = static_cast<double>(stages) - 1;
    const double formula = 100 * waits / (static_cast<double>(micro_batches) + waits);
    const auto head = format("Pipeline: {} stages, {} micro-batch{};", stages, micro_batches,
                             micro_batches == 1 ? "" : "es");
    if (!mesh.all().device().is_cpu()) return format("{} ideal bubble {:.1f} %", head, formula);
    std::vector<double> sums(2 * stages, 0.0);
    const auto own = static_cast<size_t>(mesh.pipeline().rank());
    sums[own] = busy;
    sums[stages + own] = elapsed;
    mesh.all().sum(sums);
    double all_busy = 0, all_elapsed = 0;
    std::vector<std::string> shares;
    for (size_t stage = 0; stage < stages; ++stage) {
      if (sums[stages + stage] <= 0) return {};
      all_busy += sums[stage];
      all_elapsed += sums[stages + stage];
      shares.push_back(format("{:.0f} %", 100 * (1 - sums[stage] / sums[stages + stage])));
    }
    return format("{} bubble {:.1f} % (per stage: {}), ideal {:.1f} %", head,
                  100 * (1 - all_busy / all_elapsed), base::join(shares, ", "), formula);
  }
};

// A batch cut into micro-batches, each with its share in the batch's mean loss.

struct MicroBatch {
  at::Tensor input, target;
  double parts;  // 1 / its share in the batch's mean: what a loss is divided by
};

/// `count` of them as alike as they can be, the larger ones first; as many as there are samples where these
/// are fewer. `weight` says how much a target counts in a mean.
std::vector<MicroBatch> cut_batch(const at::Tensor& input, const at::Tensor& target, int64_t count,
                                  const std::function<double(const at::Tensor&)>& weight) {
  const int64_t parts = std::clamp<int64_t>(count, 1, std::max<int64_t>(1, input.size(0)));
  const auto inputs = input.tensor_split(parts), targets = target.tensor_split(parts);
  const double whole = parts > 1 ? weight(target) : 1;
  std::vector<MicroBatch> result;
  for (size_t i = 0; i < inputs.size(); ++i)
    result.push_back({inputs[i], targets[i], parts > 1 ? whole / weight(targets[i]) : 1});
  return result;
}

// DDP over the copies of a pipeline: the ranks with the same stage average its gradients, once a batch
// however many micro-batches it has. Null where there is one copy, or nothing to learn in the stage.
// Collective over the copies.
std::unique_ptr<DdpCore> make_core(const std::shared_ptr<StageNet>& net, const Team& copies,
                                   const DdpSettings& settings, const std::shared_ptr<Tracer>& tracer) {
  if (copies.world() == 1 || parallel::reduced_parameters(*net).empty()) return nullptr;
  auto core = std::make_unique<DdpCore>(net, copies.group(), ddp_options(settings));
  add_comm_hook(*core, settings, copies.group(), tracer, /*ranges=*/false);
  return core;
}

using Buckets = std::vector<std::vector<std::string>>;
using parallel::StageLine;

// What a stage keeps of a micro-batch between its forward and its backward.
struct Alive {
  at::Tensor input;     // with its gradient, once backward was there
  at::Tensor root;      // the output, or on the last stage the loss
  at::Tensor gradient;  // of the output, from the next stage
};

class PipelineModel : public TrainedModel {
 public:
  PipelineModel(std::unique_ptr<StageLine> line, std::shared_ptr<StageNet> net, const Mesh& mesh,
                const Settings& settings, const std::shared_ptr<Tracer>& tracer)
      : TrainedModel(net),
        line_(std::move(line)),
        stage_(net),
        mesh_(mesh),
        core_(make_core(stage_, mesh.data(), settings.ddp, tracer)),
        micro_batches_(std::min(settings.parallel.micro_batches, settings.data.batch_size)) {}

  at::Tensor learn(const at::Tensor& input, const at::Tensor& target, const StepContext& context) override {
    const auto batches = cut_batch(input, target, micro_batches_, context.weight);
    const auto count = static_cast<int64_t>(batches.size());
    const int stages = line_->stages(), stage = line_->stage();
    std::vector<Alive> alive(batches.size());
    auto loss = torch::zeros({}, at::dtype(at::kDouble).device(line_->team().device()));
    const auto begin = Clock::now();
    if (core_) core_->before_forward();
    auto local = no_sync();  // for all backwards but the last
    for (const auto& [messages, turn] : parallel::stage_steps(stages, stage, count)) {
      if (!messages.empty()) context.enter(Phase::waiting);
      exchange(messages, batches, alive);
      if (!turn) break;
      auto& own = alive[static_cast<size_t>(turn->micro_batch)];
      const auto& batch = batches[static_cast<size_t>(turn->micro_batch)];
      if (turn->forward) {
        forward(own, batch, context);
        if (line_->is_last()) loss += own.root.detach().to(at::kDouble) / batch.parts;
      } else {
        if (core_ && turn->micro_batch + 1 == count) {  // gradients travel while it runs
          local.reset();
          core_->after_forward({&own.root});
        }
        backward(own, batch, context);
        own = {.input = line_->is_first() ? at::Tensor() : own.input, .root = {}, .gradient = {}};
      }
    }
    context.enter(Phase::waiting);
    line_->flush();
    loss = share_loss(loss);
    if (bubble_.batches++ == 0) {
      bubble_.busy = 0;
    } else {
      bubble_.elapsed += seconds_since(begin);
    }
    return loss;
  }

  at::Tensor forward(const at::Tensor& input) override { return net_->forward(input); }
  std::vector<at::Tensor> parameters() const override {
    return parallel::tensors_of(parallel::unique_parameters(*stage_));
  }
  std::shared_ptr<void> no_sync() override { return core_ ? std::make_shared<NoSync>(*core_) : nullptr; }
  // Those of all stages: however the model is cut when a run goes on, each stage finds its own.
  Buckets buckets() override {
    const auto mine = core_ ? core_->settle_buckets() : Buckets{};
    Buckets all;
    for (const auto& text : line_->team().all_gather(nlohmann::json(mine).dump())) {
      const auto theirs = nlohmann::json::parse(text).get<Buckets>();
      all.insert(all.end(), theirs.begin(), theirs.end());
    }
    return all;
  }
  void restore_buckets(const Buckets& names) override {
    if (!core_) return;
    const auto own = stage_->named_parameters();
    Buckets buckets;
    for (const auto& bucket : names) {
      std::vector<std::string> here;
      std::copy_if(bucket.begin(), bucket.end(), std::back_inserter(here),
                   [&](const auto& name) { return own.contains(name); });
      if (!here.empty()) buckets.push_back(here);
    }
    core_->restore_buckets(buckets);
  }
  DdpCore* ddp_core() override { return core_.get(); }
  std::string summary() const override { return bubble_.words(mesh_, micro_batches_); }
  bool exchanges() const override { return core_ != nullptr; }

 private:
  using Clock = std::chrono::steady_clock;

  static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  // Where nothing before a place learns, no gradient goes there.
  std::optional<StageLine::Parcel> parcel(const parallel::StageMessage& message,
                                          const StageLine::Sizes& batch, Alive& alive) {
    if (message.forward) return message.sends ? line_->output(alive.root, batch) : line_->input(batch);
    const auto& learns = message.sends ? alive.input : alive.root;
    if (!learns.requires_grad()) return {};
    return message.sends ? line_->gradient_of(alive.input) : line_->gradient(batch);
  }

  void exchange(const std::vector<parallel::StageMessage>& messages, const std::vector<MicroBatch>& batches,
                std::vector<Alive>& alive) {
    std::vector<StageLine::Parcel> parcels;
    for (const auto& message : messages) {
      const auto number = static_cast<size_t>(message.micro_batch);
      auto& own = alive[number];
      const auto one = parcel(message, batches[number].input.sizes().vec(), own);
      if (one) parcels.push_back(*one);
      if (one && !message.sends) (message.forward ? own.input : own.gradient) = one->tensor;
      if (!message.forward && message.sends) own = {};
    }
    line_->exchange(parcels);
  }

  void forward(Alive& alive, const MicroBatch& batch, const StepContext& context) {
    if (line_->is_first()) alive.input = batch.input;
    context.enter(Phase::forward);
    const auto begin = Clock::now();
    {
      const auto scope = context.autocast();
      alive.root = stage_->own_forward(alive.input);
      if (line_->is_last()) alive.root = context.criterion(alive.root, batch.target);
    }
    bubble_.busy += seconds_since(begin);
  }

  void backward(const Alive& alive, const MicroBatch& batch, const StepContext& context) {
    const auto begin = Clock::now();
    if (line_->is_last()) {
      context.backward(alive.root / batch.parts);
    } else if (alive.root.requires_grad()) {
      context.backward_from(alive.root, alive.gradient);
    }
    bubble_.busy += seconds_since(begin);
  }

  at::Tensor share_loss(const at::Tensor& mine) const {
    std::vector<at::Tensor> tensors{mine};
    c10d::BroadcastOptions options;
    options.rootRank = line_->stages() - 1;
    line_->team().group()->broadcast(tensors, options)->wait();
    return tensors[0];
  }

  std::unique_ptr<StageLine> line_;
  std::shared_ptr<StageNet> stage_;
  const Mesh& mesh_;
  std::unique_ptr<DdpCore> core_;
  const int64_t micro_batches_;
  Bubble bubble_;
};

}  // namespace

std::unique_ptr<TrainedModel> make_pipeline_model(std::shared_ptr<Net> net, const Mesh& mesh,
                                                  const Settings& settings,
                                                  const std::shared_ptr<Tracer>& tracer) {
  if (settings.ddp.sync_batchnorm && mesh.data().group()) convert_sync_batchnorm(*net, mesh.data().group());
  auto stages = cut_into_stages(*net, mesh.shape().pipeline);
  const auto words = stages.words(*net);
  for (size_t stage = 0; stage < words.size(); ++stage)
    log::info(format("stage {} of {}: {}", stage, words.size(), words[stage]));
  auto line = std::make_unique<StageLine>(mesh.pipeline());
  auto own = std::make_shared<StageNet>(std::move(net), stages, *line);
  own->to(mesh.all().device());
  auto model = std::make_unique<PipelineModel>(std::move(line), std::move(own), mesh, settings, tracer);
  model->set_parts(std::make_unique<StageParts>(mesh.pipeline(), stages), mesh.data().first());
  return model;
}

}  // namespace lockstep::train
