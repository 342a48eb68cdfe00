#include "lockstep/parallel/data_parallel.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/thread_pool.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/cuda.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <exception>
#include <mutex>
#include <unordered_set>

#include "lockstep/base/format.h"
#include "lockstep/base/libtorch.h"
#include "lockstep/base/log.h"
#include "lockstep/parallel/device_memory.h"

namespace lockstep {
namespace {

using Devices = std::vector<c10::Device>;
using parallel::DeviceMemoryScope;
using torch::autograd::Edge;
using torch::autograd::variable_list;
using torch::autograd::impl::gradient_edge;

constexpr int kLogicalDevices = 2;

// --- devices

void check_devices(const Devices& devices) {
  if (devices.empty()) throw InputError("there are no devices", "data_parallel", "give one or more");
  const auto gpus = static_cast<int>(torch::cuda::device_count());
  for (const auto& device : devices) {
    if (device.type() != devices.front().type() || !(device.is_cpu() || device.is_cuda()))
      throw InputError("the devices are of several kinds, or neither CPU nor CUDA", "data_parallel",
                       "give only GPUs, or only the CPU");
    if (device.is_cuda() && device.index() >= gpus)
      throw InputError(
          format("there is no {}: this process sees {} GPU{}", device.str(), gpus, gpus == 1 ? "" : "s"),
          "data_parallel", "give devices that exist, or ask the scheduler for more");
  }
}

// "device 1 of 2 (cpu)"
std::string name_of_device(size_t index, const Devices& devices) {
  return format("device {} of {} ({})", index, devices.size(), devices[index].str());
}

// A tensor on that device; logical devices of the CPU also get copies.
at::Tensor sent(const at::Tensor& tensor, size_t index, c10::Device device) {
  const DeviceMemoryScope counted(index);
  const bool is_there = index > 0 && tensor.device() == device;
  return is_there ? tensor.clone() : tensor.to(device, /*non_blocking=*/true);
}

// --- a thread for each device, kept between steps

// Names the device. The kind of error stays: it decides the exit status.
[[noreturn]] void rethrow_named(const std::exception_ptr& thrown, const std::string& device) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    auto fault = fault_of(error);
    fault.where = device + (fault.where.empty() ? "" : ", " + fault.where);
    if (dynamic_cast<const InputError*>(&error)) throw InputError(fault);
    throw Error(fault);
  }
}

class DeviceThreads {
 public:
  /// They share the calling thread's cores.
  explicit DeviceThreads(const Devices& devices) : devices_(devices) {
    for (size_t i = 0; i < devices.size(); ++i) workers_.push_back(std::make_unique<c10::ThreadPool>(1));
    const int all = at::get_num_threads();
    const int share = std::max(1, all / std::max(1, static_cast<int>(devices.size())));
    run(devices.size(), [share](size_t) {
      at::get_num_threads();  // the first call takes the process's number
      at::set_num_threads(share);
    });
    at::set_num_threads(all);
  }

  /// work(0) to work(count - 1), each on its device's thread, in the caller's grad mode, autocast and debug
  /// state. Returns when all are done; then the first device's error is thrown.
  void run(size_t count, const std::function<void(size_t)>& work, bool one_by_one = false) {
    const at::ThreadLocalState state;  // has whether autocast is on, but not its types
    const auto cpu_type = at::autocast::get_autocast_dtype(at::kCPU);
    const auto cuda_type = at::autocast::get_autocast_dtype(at::kCUDA);
    const bool cached = at::autocast::is_autocast_cache_enabled();
    std::vector<std::exception_ptr> errors(count);
    const auto job = [&](size_t i) {
      try {
        const at::ThreadLocalStateGuard as_the_caller(state);
        at::autocast::set_autocast_dtype(at::kCPU, cpu_type);
        at::autocast::set_autocast_dtype(at::kCUDA, cuda_type);
        at::autocast::set_autocast_cache_enabled(cached);
        const c10::OptionalDeviceGuard here(devices_[i].is_cpu() ? std::nullopt : std::optional(devices_[i]));
        const DeviceMemoryScope counted(i);
        work(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    };
    for (size_t i = 0; i < count; ++i) {
      workers_[i]->run([&job, i] { job(i); });
      if (one_by_one) workers_[i]->waitWorkComplete();
    }
    for (size_t i = 0; i < count; ++i) workers_[i]->waitWorkComplete();
    for (size_t i = 0; i < count; ++i)
      if (errors[i]) rethrow_named(errors[i], name_of_device(i, devices_));
  }

 private:
  const Devices devices_;
  std::vector<std::unique_ptr<c10::ThreadPool>> workers_;  // of one thread each
};

at::Tensor cpu_generator_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void restore_cpu_generator(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

// --- replicate: a copy of the module on each device, made once and brought up to date before each forward

using Named = torch::OrderedDict<std::string, at::Tensor>;

[[noreturn]] void refuse_replica(const std::string& what) {
  throw InputError("a replica differs from the module: " + what, "data_parallel",
                   "create it as the module was created; a Cloneable creates its layers in reset()");
}

/// A parameter of a replica that wants a gradient, and the place of the module's own in Replicas::sources().
struct Leaf {
  at::Tensor tensor;
  size_t source;
};

class Replicas {
 public:
  /// InputError where a replica is not built as the module is.
  Replicas(std::shared_ptr<torch::nn::Module> module, const Devices& devices,
           const DataParallelCore::MakeReplica& make)
      : module_(std::move(module)) {
    std::unordered_set<c10::TensorImpl*> seen;
    for (const auto& parameter : module_->parameters())
      if (seen.insert(parameter.unsafeGetTensorImpl()).second) sources_.push_back(parameter);
    const auto generator = cpu_generator_state();  // what a replica draws when it is made leaves no trace
    for (const auto& device : devices) {
      const DeviceMemoryScope counted(copies_.size());
      auto& copy = copies_.emplace_back(Copy{device, make(device), {}, {}});
      if (!copy.module) refuse_replica("the function returned null");
      if (copy.module == module_) refuse_replica("it is the module itself");
      if (copy.module->modules().size() != module_->modules().size())
        refuse_replica("it has other submodules");
      copy.parameters = pairs(module_->named_parameters(), copy.module->named_parameters());
      copy.buffers = pairs(module_->named_buffers(), copy.module->named_buffers());
    }
    restore_cpu_generator(generator);
  }

  /// Parameters, buffers and modes of the first `count` become the module's. `keep`: the backward of an
  /// earlier forward may still come and needs the values there, written only where they differ.
  void refresh(size_t count, bool keep) {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < count; ++i) {
      const DeviceMemoryScope counted(i);
      auto& replica = copies_[i];
      copy_modes(*module_, *replica.module);
      for (auto& pair : replica.parameters) {
        pair.own.set_requires_grad(pair.original.requires_grad());
        if (i == 0 || !keep || !is_equal(pair.own, pair.original)) update(pair, i, replica.device);
      }
      // a graph that saved a running mean does not read it again: hide the copy from autograd
      const at::AutoDispatchBelowADInplaceOrView unseen;
      for (auto& pair : replica.buffers) update(pair, i, replica.device);
    }
  }

  torch::nn::Module& operator[](size_t device) const { return *copies_[device].module; }

  std::vector<Leaf> leaves(size_t device) const {
    std::vector<Leaf> result;
    for (const auto& pair : copies_[device].parameters) {
      if (pair.own.requires_grad()) result.push_back({pair.own, pair.source});
    }
    return result;
  }

  /// The module's parameters, each once.
  const std::vector<at::Tensor>& sources() const { return sources_; }

 private:
  struct Pair {
    at::Tensor own, original;
    size_t source = 0;
  };
  struct Copy {
    c10::Device device;
    std::shared_ptr<torch::nn::Module> module;
    std::vector<Pair> parameters, buffers;
  };

  // Shared parameters appear under each of their names, and are paired once.
  std::vector<Pair> pairs(const Named& originals, const Named& own) const {
    if (originals.size() != own.size()) refuse_replica("it has other parameters or buffers");
    std::vector<Pair> result;
    std::unordered_set<c10::TensorImpl*> seen;
    for (size_t i = 0; i < own.size(); ++i) {
      const auto& name = originals[i].key();
      const auto& original = originals[i].value();
      if (own[i].key() != name)
        refuse_replica("it has '" + own[i].key() + "' where the module has '" + name + "'");
      if (own[i].value().sizes() != original.sizes()) refuse_replica("'" + name + "' has another shape");
      if (!seen.insert(own[i].value().unsafeGetTensorImpl()).second) continue;
      const auto source = std::ranges::find_if(
          sources_, [&](const at::Tensor& parameter) { return parameter.is_same(original); });
      result.push_back({own[i].value(), original, static_cast<size_t>(source - sources_.begin())});
    }
    return result;
  }

  // The first replica shares the module's memory and its count of changes: the module sees what it does.
  static void update(Pair& pair, size_t device_index, c10::Device device) {
    auto& [own, original, source] = pair;
    if (device_index == 0) {
      if (own.is_alias_of(original) && own.sizes() == original.sizes()) return;
      own.set_data(original.detach());
      torch::autograd::impl::set_version_counter(own, torch::autograd::impl::version_counter(original));
      return;
    }
    const bool fits = own.sizes() == original.sizes() && own.strides() == original.strides() &&
                      own.scalar_type() == original.scalar_type() && own.device() == device;
    if (!fits) own.set_data(at::empty_like(original, original.options().device(device)));
    own.copy_(original.detach(), /*non_blocking=*/true);
  }

  // By value: libtorch's optimizers do not increase a parameter's version.
  static bool is_equal(const at::Tensor& own, const at::Tensor& original) {
    return own.scalar_type() == original.scalar_type() && own.sizes() == original.sizes() &&
           own.equal(original.to(own.device()));
  }

  // For each submodule: a BatchNorm may stay in evaluation mode.
  static void copy_modes(const torch::nn::Module& from, torch::nn::Module& to) {
    const auto originals = from.modules(), own = to.modules();
    for (size_t i = 0; i < own.size(); ++i)
      if (own[i]->is_training() != originals[i]->is_training()) own[i]->train(originals[i]->is_training());
  }

  std::shared_ptr<torch::nn::Module> module_;
  std::vector<at::Tensor> sources_;
  std::vector<Copy> copies_;
};

// --- gather: one node of the graph joins the devices' outputs. Its backward scatters the gradient, runs each
// device's backward (a GPU on the engine's thread, a logical device on its own), and sums.

/// Where a device's piece of a gathered tensor lies, and where its own graph goes on.
struct Piece {
  int64_t begin = 0, length = 0;
  bool is_number = false;
  Edge edge;
};

/// What one device does in a forward, and its graph from pieces of the outputs back to parameters and inputs.
struct DeviceShare {
  c10::Device device;
  std::vector<at::Tensor> given;         // its part of the inputs, as they came
  std::vector<at::Tensor> inputs;        // the same, at the beginning of a graph of its own
  std::vector<Leaf> leaves = {};         // its replica's parameters
  std::vector<at::Tensor> outputs = {};  // at the end of the graph
  std::vector<Piece> pieces = {};        // of the gathered outputs
};

bool wants_gradient(const at::Tensor& tensor) {
  return tensor.defined() && tensor.requires_grad();
}

// A backward through some devices' graphs.
struct Backward {
  torch::autograd::edge_list roots, wanted;
  variable_list gradients;

  void add(size_t index, const DeviceShare& graph, const variable_list& gathered) {
    for (size_t k = 0; k < graph.pieces.size(); ++k) {
      const auto& piece = graph.pieces[k];
      if (!piece.edge.is_valid() || !gathered[k].defined()) continue;
      const auto gradient = sent(gathered[k].narrow(0, piece.begin, piece.length), index, graph.device);
      roots.push_back(piece.edge);
      gradients.push_back(piece.is_number ? gradient.reshape({}) : gradient);
    }
    for (const auto& leaf : graph.leaves) wanted.push_back(gradient_edge(leaf.tensor));
    for (const auto& input : graph.inputs) wanted.push_back(gradient_edge(input));
  }

  variable_list run(bool keep_graph) const {
    if (roots.empty() || wanted.empty()) return variable_list(wanted.size());
    return torch::autograd::Engine::get_default_engine().execute(roots, gradients, keep_graph,
                                                                 /*create_graph=*/false,
                                                                 /*accumulate_grad=*/false, wanted);
  }
};

class GatherNode : public torch::autograd::Node {
 public:
  GatherNode(std::vector<DeviceShare> graphs, size_t sources, std::shared_ptr<DeviceThreads> threads)
      : graphs_(std::move(graphs)), sources_(sources), threads_(std::move(threads)) {}

  variable_list apply(variable_list&& gradients) override {
    if (graphs_.empty())
      throw Error("backward has already run through this graph", "data_parallel",
                  "keep it with retain_graph, or run the forward again");
    if (at::GradMode::is_enabled())
      throw InputError("data_parallel does not support a gradient of a gradient", "data_parallel",
                       "compute it with the module itself");
    const bool keep = torch::autograd::get_current_graph_task_keep_graph();
    if (!graphs_.front().device.is_cpu()) {
      // One backward through all graphs. The engine has one thread for each GPU, and this is the first GPU's:
      // a backward on another thread that needs this GPU would wait for this one forever.
      Backward all;
      for (size_t i = 0; i < graphs_.size(); ++i) all.add(i, graphs_[i], gradients);
      return sum(all.run(keep));
    }
    std::vector<variable_list> parts(graphs_.size());
    threads_->run(graphs_.size(), [&](size_t i) {
      Backward own;
      own.add(i, graphs_[i], gradients);
      parts[i] = own.run(keep);
    });
    variable_list found;
    for (const auto& part : parts) found.insert(found.end(), part.begin(), part.end());
    return sum(found);
  }

  void release_variables() override {
    graphs_.clear();
    pending_.reset();
  }

  /// While it lives, a backward may come.
  std::weak_ptr<void> pending() const { return pending_; }

 private:
  // `found`: for each device the gradients of its parameters, then of its inputs. In the order of the
  // devices, so that the bits do not depend on which one finished first.
  variable_list sum(const variable_list& found) const {
    variable_list result(sources_), of_inputs;
    auto next = found.begin();
    for (const auto& graph : graphs_) {
      for (const auto& leaf : graph.leaves) {
        const auto& gradient = *next++;
        if (!gradient.defined()) continue;
        auto& total = result[leaf.source];
        const auto own = gradient.to(graphs_.front().device);
        total = total.defined() ? total + own : own;
      }
      for (size_t i = 0; i < graph.inputs.size(); ++i) of_inputs.push_back(*next++);
    }
    result.insert(result.end(), of_inputs.begin(), of_inputs.end());
    return result;
  }

  std::vector<DeviceShare> graphs_;
  size_t sources_;
  std::shared_ptr<DeviceThreads> threads_;
  std::shared_ptr<void> pending_ = std::make_shared<int>();
};

void check_outputs_alike(const std::vector<DeviceShare>& shares, const Devices& devices) {
  const auto same_dimensions = [](const at::Tensor& a, const at::Tensor& b) { return a.dim() == b.dim(); };
  for (size_t i = 1; i < shares.size(); ++i) {
    if (!std::ranges::equal(shares[i].outputs, shares[0].outputs, same_dimensions))
      throw InputError("the devices' outputs differ in their number of tensors or of dimensions",
                       name_of_device(i, devices), "let forward return the same structure for every batch");
  }
}

// One gathered tensor, outside of any graph; its pieces are noted. Numbers become a row of them.
at::Tensor join(std::vector<DeviceShare>& shares, size_t k) {
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  int64_t begin = 0;
  for (auto& share : shares) {
    const auto& output = share.outputs[k];
    const bool is_number = output.dim() == 0;
    parts.push_back((is_number ? output.reshape({1}) : output).to(shares.front().device));
    share.pieces.push_back(
        {begin, parts.back().size(0), is_number, output.requires_grad() ? gradient_edge(output) : Edge()});
    begin += parts.back().size(0);
  }
  return at::cat(parts);
}

struct Gathered {
  std::vector<at::Tensor> outputs;
  std::weak_ptr<void> pending;
};

Gathered gather(std::vector<DeviceShare> shares, const std::vector<at::Tensor>& sources,
                std::shared_ptr<DeviceThreads> threads, const Devices& devices) {
  check_outputs_alike(shares, devices);
  Gathered gathered;
  std::vector<bool> differentiable;
  for (size_t k = 0; k < shares.front().outputs.size(); ++k) {
    gathered.outputs.push_back(join(shares, k));
    differentiable.push_back(std::ranges::any_of(
        shares, [k](const DeviceShare& share) { return wants_gradient(share.outputs[k]); }));
  }
  if (std::ranges::find(differentiable, true) == differentiable.end()) return gathered;
  torch::autograd::edge_list edges;  // behind the node: the module's parameters, then the inputs
  for (const auto& source : sources) edges.push_back(source.requires_grad() ? gradient_edge(source) : Edge());
  for (auto& share : shares) {
    for (const auto& given : std::exchange(share.given, {}))
      if (wants_gradient(given)) edges.push_back(gradient_edge(given));
    std::erase_if(share.inputs, [](const at::Tensor& input) { return !wants_gradient(input); });
    share.outputs.clear();
  }
  const auto node = base::make_node<GatherNode>(std::move(shares), sources.size(), std::move(threads));
  node->set_next_edges(std::move(edges));
  for (size_t k = 0; k < gathered.outputs.size(); ++k) {
    if (differentiable[k])
      torch::autograd::create_gradient_edge(gathered.outputs[k], node);
    else
      node->add_input_metadata(torch::autograd::Node::undefined_input());
  }
  gathered.pending = node->pending();
  return gathered;
}

// A single device uses the module itself.
Devices replicated(const Devices& devices) {
  return devices.size() > 1 ? devices : Devices();
}

void require_one_batch(const std::vector<at::Tensor>& whole) {
  int64_t samples = -1;
  for (const auto& tensor : whole) {
    if (tensor.dim() == 0) continue;
    if (samples >= 0 && tensor.size(0) != samples)
      throw InputError(format("the inputs have different batch sizes: {} and {}", samples, tensor.size(0)),
                       "data_parallel", "pass tensors whose first dimension is the batch");
    samples = tensor.size(0);
  }
}

}  // namespace

std::vector<c10::Device> visible_devices() {
  return devices_like(torch::cuda::is_available() ? c10::Device(at::kCUDA, 0) : c10::Device(at::kCPU), 0);
}

std::vector<c10::Device> devices_like(c10::Device first, int count) {
  if (first.is_cpu()) return Devices(count > 0 ? count : kLogicalDevices, first);
  const auto there = static_cast<int>(torch::cuda::device_count());
  const int wanted = count > 0 ? count : there;
  if (wanted > there)
    throw InputError(format("{} GPUs were requested, but this process sees {}", wanted, there),
                     "data_parallel.devices", "set fewer, or 0 for all of them");
  Devices devices;
  for (int i = 0; i < wanted; ++i) devices.emplace_back(at::kCUDA, static_cast<c10::DeviceIndex>(i));
  return devices;
}

struct DataParallelCore::State {
  State(std::shared_ptr<torch::nn::Module> wrapped, Devices places, const MakeReplica& make)
      : module(std::move(wrapped)),
        devices(std::move(places)),
        threads(std::make_shared<DeviceThreads>(replicated(devices))),
        replicas(module, replicated(devices), make) {}

  // All logical devices share the CPU's generator: a model that draws from it runs them one by one, so that
  // the same seed gives the same bits. The first step finds out whether it draws.
  void parallel_apply(size_t count, const std::function<void(size_t)>& work) {
    if (!devices.front().is_cpu()) return threads->run(count, work);
    auto& take_turns = draws[module->is_training() ? 1 : 0];
    const auto before = cpu_generator_state();
    threads->run(count, work, take_turns);
    const bool drew = !before.equal(cpu_generator_state());
    if (drew && !take_turns)
      log::warning(
          "the model has begun to draw random numbers: this step is not reproducible, because the devices "
          "ran at the same time; from now on they run one after the other");
    take_turns = drew;
  }

  std::shared_ptr<torch::nn::Module> module;
  Devices devices;
  std::shared_ptr<DeviceThreads> threads;
  Replicas replicas;
  std::weak_ptr<void> pending;               // the last forward's backward
  std::array<bool, 2> draws = {true, true};  // in evaluation, in training
};

DataParallelCore::DataParallelCore(std::shared_ptr<torch::nn::Module> module,
                                   std::vector<c10::Device> devices, const MakeReplica& make) {
  if (!module) throw InputError("the module is empty", "data_parallel", "create it first");
  check_devices(devices);
  module->to(devices.front());
  state_ = std::make_unique<State>(std::move(module), std::move(devices), make);
}

DataParallelCore::~DataParallelCore() = default;

const std::vector<c10::Device>& DataParallelCore::devices() const {
  return state_->devices;
}

std::vector<std::vector<at::Tensor>> DataParallelCore::scatter(const std::vector<at::Tensor>& whole) const {
  require_one_batch(whole);
  const auto& devices = state_->devices;
  std::vector<std::vector<at::Tensor>> chunks;  // [tensor][device]
  size_t count = 1;
  for (const auto& tensor : whole) {
    chunks.push_back(tensor.dim() == 0 ? std::vector<at::Tensor>()
                                       : tensor.chunk(static_cast<int64_t>(devices.size())));
    count = std::max(count, chunks.back().size());
  }
  std::vector<std::vector<at::Tensor>> shares(count);
  for (size_t i = 0; i < count; ++i) {
    for (size_t k = 0; k < whole.size(); ++k)
      shares[i].push_back(sent(chunks[k].empty() ? whole[k] : chunks[k][i], i, devices[i]));
  }
  return shares;
}

std::vector<at::Tensor> DataParallelCore::run(std::vector<std::vector<at::Tensor>> given,
                                              const Forward& forward) {
  auto& state = *state_;
  state.replicas.refresh(given.size(), !state.pending.expired());
  const bool recording = at::GradMode::is_enabled();
  std::vector<DeviceShare> shares;
  for (size_t i = 0; i < given.size(); ++i) {
    auto& share = shares.emplace_back(DeviceShare{state.devices[i], std::move(given[i]), {}});
    if (recording) share.leaves = state.replicas.leaves(i);
    for (const auto& tensor : share.given)
      share.inputs.push_back(tensor.requires_grad() ? tensor.detach().requires_grad_() : tensor);
  }
  state.parallel_apply(
      shares.size(), [&](size_t i) { shares[i].outputs = forward(i, state.replicas[i], shares[i].inputs); });
  auto gathered = gather(std::move(shares), state.replicas.sources(), state.threads, state.devices);
  state.pending = gathered.pending;
  return std::move(gathered.outputs);
}

}  // namespace lockstep
