#include "lockstep/parallel/ddp_core.h"

#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/format.h"
#include "lockstep/base/libtorch.h"
#include "lockstep/base/local_gradients.h"
#include "lockstep/base/log.h"
#include "lockstep/base/own_graph.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/connect.h"
#include "lockstep/comm/group_texts.h"
#include "lockstep/comm/shared_backend.h"
#include "lockstep/parallel/module_tensors.h"

namespace lockstep {
namespace {

using parallel::ReducedParameter;

// --- do the ranks have the same model and options?

/// What has to be the same on every rank, each as a subject and its value.
std::vector<std::string> facts_of(const torch::nn::Module& module, const DdpOptions& options) {
  std::vector<std::string> digests;
  for (const auto& part : module.modules())
    if (const auto* own = dynamic_cast<const OwnGraph*>(part.get())) digests.push_back(own->graph_digest());
  const auto cap = options.bucket_cap_mb;
  std::vector<std::string> facts = {
      "option find_unused_parameters",
      format("{}", options.find_unused_parameters),
      "option static_graph",
      format("{}", options.static_graph),
      "option broadcast_buffers",
      format("{}", options.syncs_first_buffers()),
      "option forward_sync_buffers",
      format("{}", options.syncs_buffers()),
      "option skip_all_reduce_unused_params",
      format("{}", options.skip_all_reduce_unused_params),
      "option bucket_cap_mb",
      cap ? format("{}", *cap) : "unset",
      "option bucket_cap_mb_list",
      c10::str(c10::Join(" ", options.bucket_cap_mb_list)),
      "option batched_grad_copy",
      format("{}", options.batched_grad_copy),
      "option lazy_bucket_allocation",
      format("{}", options.lazy_bucket_allocation),
      "the graph",
      digests.empty() ? "none" : base::join(digests, " "),
  };
  for (const auto& [name, tensor] : parallel::unique_parameters(module, options.ignore)) {
    auto value = c10::str(c10::toString(tensor.scalar_type()), " ", tensor.sizes());
    if (!tensor.is_contiguous()) value += c10::str(" with strides ", tensor.strides());
    if (!tensor.requires_grad()) value += ", frozen (requires_grad is false)";
    facts.insert(facts.end(), {"parameter " + name, value});
  }
  return facts;
}

// Of the values: names may differ, as in Python.
std::string digest_of(const std::vector<std::string>& facts) {
  base::Sha256 digest;
  for (size_t i = 1; i < facts.size(); i += 2) digest.add(facts[i].c_str(), facts[i].size() + 1);
  return digest.hex();
}

/// Collective. Throws the same InputError on every rank where a rank's parameters (number, type, shape,
/// layout, which are frozen), options or graphs (OwnGraph) are not rank 0's. One small all-gather where all
/// ranks agree, their whole texts where they do not.
void verify_alike(const ProcessGroup& group, const torch::nn::Module& module, const DdpOptions& options,
                  at::Device device) {
  const auto facts = facts_of(module, options);
  const auto digests = comm::all_gather(group, comm::bytes_of(digest_of(facts)), device);
  if (std::ranges::all_of(digests, [&](const at::Tensor& one) { return one.equal(digests[0]); })) return;
  std::vector<std::vector<std::string>> all;
  for (const auto& packed : comm::all_gather(group, base::pack_texts(facts), device))
    all.push_back(base::unpack_texts(packed));
  const auto text = [&](size_t rank, size_t i) {
    const auto has = i < all[rank].size() ? all[rank][i - 1] + " " + all[rank][i] : "no more parameters";
    return format("rank {} has {}", comm::rank_in_job(group, static_cast<int>(rank)), has);
  };
  for (size_t rank = 1; rank < all.size(); ++rank) {
    for (size_t i = 1; i < std::max(all[0].size(), all[rank].size()); i += 2) {
      if (i < all[0].size() && i < all[rank].size() && all[0][i] == all[rank][i]) continue;
      throw InputError(text(rank, i) + ", " + text(0, i), "DistributedDataParallel",
                       "build the same module with the same options on every rank");
    }
  }
}

/// Checks what a rank can see alone.
void verify_locally(const torch::nn::Module& module, const std::vector<ReducedParameter>& parameters,
                    const DdpOptions& options) {
  const std::string where = "DistributedDataParallel over " + module.name();
  if (parameters.empty())
    throw InputError("the module has no parameter that requires a gradient", where,
                     "use the module itself; there is nothing to exchange");
  std::set<c10::DeviceType> types;
  for (const auto& parameter : parameters) types.insert(parameter.tensor.device().type());
  if (types.size() > 1)
    throw InputError("the module's parameters are on the CPU and on a GPU", where,
                     "move all to one kind of device");
  for (const double size : options.bucket_cap_mb_list)
    if (!(size > 0))
      throw InputError(format("bucket_cap_mb_list contains {}", size), where, "give sizes above 0");
  if (options.bucket_cap_mb && !(*options.bucket_cap_mb >= 0))
    throw InputError(format("bucket_cap_mb is {}", *options.bucket_cap_mb), where,
                     "give 0 for one bucket per parameter, a size in MiB, or leave it out for 25");
}

// --- the Reducer's errors with the parameters' names

// The numbers in its message become names: "…did not receive grad for rank 0: 4 5\n…"
std::string unused_in(const std::string& message, const std::vector<ReducedParameter>& parameters) {
  constexpr size_t kShown = 20;
  const auto at = message.find("did not receive grad for rank");
  const auto colon = at == std::string::npos ? at : message.find(':', at);
  if (colon == std::string::npos) return {};
  std::istringstream numbers(message.substr(colon + 1));
  std::vector<std::string> names;
  for (size_t i = 0; numbers >> i;)
    names.push_back(i < parameters.size() ? parameters[i].name : format("#{}", i));
  const auto more = names.size() > kShown ? format(" and {} more", names.size() - kShown) : "";
  names.resize(std::min(names.size(), kShown));
  return base::join(names, ", ") + more;
}

template <class Action>
void with_names(const ProcessGroup& group, const std::vector<ReducedParameter>& parameters,
                const Action& action) {
  try {
    action();
  } catch (const c10::Error& error) {
    const std::string message = error.what();
    const int rank = comm::rank_in_job(group, group->getRank());
    const auto where = format("DistributedDataParallel, rank {}", rank);
    if (const auto unused = unused_in(message, parameters); !unused.empty())
      throw Error("these parameters had no gradient in the last backward: " + unused, where,
                  "if they are unused on purpose, set find_unused_parameters, or static_graph if they are "
                  "unused in every step; otherwise check that the loss uses every output of forward")
          .of(Code::no_gradient, {rank});
    if (message.find("Expected to have finished reduction in the prior iteration") != std::string::npos)
      throw Error(
          "the last step did not finish: some parameters had no gradient, or backward did not run", where,
          "set find_unused_parameters if parameters may stay unused; after an exception, call reset()")
          .of(Code::no_gradient, {rank});
    throw;
  }
}

// --- a node behind the outputs of a forward pass: what Python's DDPSink does

/// The all-reduces of a static graph's first iteration, to be queued once, from inside its backward pass.
struct DelayedAllReduce {
  std::weak_ptr<c10d::Reducer> reducer;
  bool queued = false;
};

class DdpSink : public torch::autograd::Node {
 public:
  explicit DdpSink(std::shared_ptr<DelayedAllReduce> delayed) : delayed_(std::move(delayed)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (delayed_ && !delayed_->queued) queue_all_reduce();
    return std::move(gradients);
  }

 private:
  void queue_all_reduce() {
    delayed_->queued = true;
    torch::autograd::Engine::get_default_engine().queue_callback([delayed = delayed_] {
      if (const auto reducer = delayed->reducer.lock()) reducer->delay_all_reduce();
    });
  }

  std::shared_ptr<DelayedAllReduce> delayed_;
};

at::Tensor clone_outside_autograd(const at::Tensor& tensor) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return tensor.clone();
}

// Replaces each output that has a history with a copy whose gradient passes through the sink. Outputs that
// the loss does not use then hand an undefined gradient down, and the Reducer learns of every parameter
// behind them. `delayed` is null unless the first iteration of a static graph is under way.
void attach_sink(const std::vector<at::Tensor*>& outputs, std::shared_ptr<DelayedAllReduce> delayed) {
  torch::autograd::variable_list inputs;
  for (const at::Tensor* output : outputs) inputs.push_back(*output);
  if (!torch::autograd::compute_requires_grad(inputs)) return;

  const auto sink = base::make_node<DdpSink>(std::move(delayed));
  sink->set_next_edges(torch::autograd::collect_next_edges(inputs));
  for (at::Tensor* output : outputs) {
    // a tensor without a history stays itself (pytorch#60733)
    if (!output->defined() || !output->grad_fn()) {
      sink->add_input_metadata(torch::autograd::Node::undefined_input());
      continue;
    }
    at::Tensor copy = clone_outside_autograd(*output);
    torch::autograd::create_gradient_edge(copy, sink);
    *output = std::move(copy);
  }
}

// --- sees gradients arrive that the Reducer lets pass: of a forward around the wrapper, or of a second
// backward. The ranks' parameters would differ from then on, and nothing would report it.

at::Tensor sum_of(const at::Tensor& parameter) {
  const at::NoGradGuard no_grad;
  const auto values = parameter.is_complex() ? at::view_as_real(parameter) : parameter;
  return values.sum(at::kDouble);
}

bool has_moved(const at::Tensor& parameter, const at::Tensor& before) {
  const auto now = sum_of(parameter);
  return !at::equal(now, before) && !(now.isnan() & before.isnan()).item<bool>();
}

class GradientWatch {
 public:
  /// In a static graph a backward may bring a gradient several times, as often as in the first step.
  GradientWatch(const std::vector<ReducedParameter>& parameters, bool static_graph)
      : static_graph_(static_graph) {
    using torch::autograd::variable_list;
    watched_.reserve(parameters.size());
    // as the Reducer does: a hook behind the node that adds to a parameter's gradient
    for (const auto& parameter : parameters) {
      auto& watched = watched_.emplace_back(WatchedParameter{.parameter = parameter});
      auto accumulator = torch::autograd::impl::grad_accumulator(parameter.tensor);
      base::watch_gradient(parameter.tensor.unsafeGetTensorImpl());
      const auto key = accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [this, &watched](const variable_list& outputs, const variable_list&) {
            arrive(watched);
            return outputs;
          }));
      unhook_.push_back([accumulator = std::move(accumulator), key] { accumulator->del_post_hook(key); });
    }
  }
  ~GradientWatch() {
    for (const auto& unhook : unhook_) unhook();
    for (const auto& watched : watched_)
      base::unwatch_gradient(watched.parameter.tensor.unsafeGetTensorImpl());
  }
  GradientWatch(GradientWatch&&) = delete;

  /// Before a forward whose backward is exchanged, and where gradients are zeroed. Warns where a parameter
  /// changed with a gradient that was not exchanged, as optimizers other than ours do not check. It is no
  /// error: something else may have changed it.
  void look_for_moves() {
    std::vector<std::string> moved;
    for (auto& watched : watched_) {
      if (!watched.sum.defined()) continue;
      // a gradient that was zeroed by a zero_grad() of ours has moved nothing
      if (base::is_marked_local(watched.parameter.tensor.unsafeGetTensorImpl()) &&
          has_moved(watched.parameter.tensor, watched.sum))
        moved.push_back(watched.parameter.name);
      forget(watched);
    }
    if (moved.empty() || std::exchange(has_warned_, true)) return;
    log::warning(
        format("{} changed after a backward that was not exchanged: the ranks' parameters may differ from "
               "now on; {}",
               base::first_of(moved), base::kExchangeGradients));
  }

  /// After a forward of ours: one backward is expected, exchanged or local. An exchange takes along what is
  /// local and has moved nothing.
  void expect(bool exchanged) {
    if (exchanged) ++exchanges_;
    learns_ = static_graph_ && exchanges_ <= 1;
    expects_ = true;
    for (auto& watched : watched_) {
      watched.arrived = 0;
      if (exchanged && watched.sum.defined()) forget(watched);
    }
  }

  /// While no_sync() is held whatever arrives is meant to be local.
  void permit_local(bool permitted) { permits_local_ = permitted; }

 private:
  struct WatchedParameter {
    ReducedParameter parameter;
    int64_t arrived = 0;  // since the last forward
    int64_t usual = 1;    // arrivals a backward
    at::Tensor sum = {};  // of the parameter's values when its gradient became local
  };

  static void forget(WatchedParameter& watched) {
    watched.sum.reset();
    base::unmark_local_gradient(watched.parameter.tensor.unsafeGetTensorImpl());
  }

  void arrive(WatchedParameter& watched) const {
    ++watched.arrived;
    if (permits_local_) return;
    if (expects_ && learns_) watched.usual = watched.arrived;
    if (expects_ && watched.arrived <= watched.usual) return;
    const auto& tensor = watched.parameter.tensor;
    if (!tensor.grad().defined()) return;
    watched.sum = sum_of(tensor);
    base::mark_local_gradient(tensor.unsafeGetTensorImpl(), tensor.grad().unsafeGetTensorImpl(),
                              watched.parameter.name);
  }

  std::vector<WatchedParameter> watched_;
  std::vector<std::function<void()>> unhook_;
  const bool static_graph_;
  bool expects_ = false;  // a forward of ours was there
  bool permits_local_ = false;
  bool learns_ = false;  // in the first exchanged step of a static graph
  int64_t exchanges_ = 0;
  bool has_warned_ = false;
};

// --- c10d's Reducer and Logger, made as Python's DDP makes them

/// libtorch's, with a look at its buckets: get_grad_buckets() refuses where one has no buffer
/// (libtorch 2.15), and that of a sparse gradient has none before its first backward pass.
class Reducer : public c10d::Reducer {
 public:
  using c10d::Reducer::Reducer;
  /// Of the buckets that have one now: not of sparse gradients, nor of buckets that are allocated lazily.
  std::vector<at::Tensor> buffers() const {
    std::vector<at::Tensor> buffers;
    for (const auto& bucket : buckets_)
      if (bucket.gradients.defined()) buffers.push_back(bucket.gradients);
    return buffers;
  }
  /// The parameters of each bucket, in the order of the sums.
  std::vector<std::vector<at::Tensor>> bucket_parameters() const {
    std::vector<std::vector<at::Tensor>> parameters;
    for (const auto& bucket : buckets_) parameters.push_back(bucket.variables);
    return parameters;
  }
};

/// Which parameters, by index, share a bucket.
using Buckets = std::vector<std::vector<size_t>>;

constexpr double kMiB = 1024 * 1024;
constexpr double kDefaultCapMiB = 25;

std::vector<int64_t> bytes(const std::vector<double>& mib) {
  std::vector<int64_t> result;
  for (const double size : mib) result.push_back(static_cast<int64_t>(size * kMiB));
  return result;
}

int64_t bucket_bytes_cap(const DdpOptions& options) {
  const auto& list = options.bucket_cap_mb_list;
  if (!list.empty()) return static_cast<int64_t>(*std::max_element(list.begin(), list.end()) * kMiB);
  return static_cast<int64_t>(options.bucket_cap_mb.value_or(kDefaultCapMiB) * kMiB);
}

bool has_default_cap(const DdpOptions& options) {
  return !options.bucket_cap_mb && options.bucket_cap_mb_list.empty();
}

// In the first iteration the order of the gradients is not known, so all share one bucket, unless
// find_unused_parameters rules out that buckets are rebuilt later.
std::vector<size_t> first_limits(const DdpOptions& options) {
  const auto list = bytes(options.bucket_cap_mb_list);
  if (!list.empty()) return {list.begin(), list.end()};
  if (options.static_graph || !options.find_unused_parameters) return {std::numeric_limits<int64_t>::max()};
  const auto cap = static_cast<size_t>(bucket_bytes_cap(options));
  if (has_default_cap(options)) return {c10d::kDefaultFirstBucketBytes, cap};
  return {cap};
}

std::vector<bool> sparse_flags(const std::vector<ReducedParameter>& parameters) {
  std::vector<bool> flags;
  for (const auto& parameter : parameters) flags.push_back(parameter.sparse_gradient);
  return flags;
}

Buckets first_buckets(const std::vector<ReducedParameter>& parameters, const DdpOptions& options) {
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(
      parallel::tensors_of(parameters), first_limits(options), sparse_flags(parameters)));
  // Gradients come roughly in the reverse order of the forward pass.
  std::reverse(buckets.begin(), buckets.end());
  return buckets;
}

std::unordered_map<size_t, std::string> names_by_index(const std::vector<ReducedParameter>& parameters) {
  std::unordered_map<size_t, std::string> names;
  for (size_t i = 0; i < parameters.size(); ++i) names[i] = parameters[i].name;
  return names;
}

bool has_sync_batchnorm(const torch::nn::Module& module) {
  for (const auto& part : module.modules())
    if (part->name().find("SyncBatchNorm") != std::string::npos) return true;
  return false;
}

void refuse_what_is_not_there(int taken, const DdpOptions& options) {
  const std::pair<bool, const char*> asked[] = {
      {options.skip_all_reduce_unused_params, "skip_all_reduce_unused_params needs libtorch 2.8"},
      {!options.bucket_cap_mb_list.empty(), "bucket_cap_mb_list needs libtorch 2.11"},
      {options.batched_grad_copy, "batched_grad_copy needs libtorch 2.12"},
      {options.lazy_bucket_allocation, "lazy_bucket_allocation needs libtorch 2.15"}};
  for (const auto& [is_asked, what] : std::span(asked).subspan(static_cast<size_t>(taken)))
    if (is_asked) throw InputError(what, "DdpOptions", "leave it out, or build against a newer libtorch");
}

template <class... Args>
std::shared_ptr<Reducer> construct_with(const DdpOptions& options, Args&&... args) {
  refuse_what_is_not_there(base::reducer_extras<Reducer, Args...>(), options);
  return base::construct_reducer<Reducer>({.skip_unused = options.skip_all_reduce_unused_params,
                                           .sizes = bytes(options.bucket_cap_mb_list),
                                           .batched_copy = options.batched_grad_copy,
                                           .lazy_buckets = options.lazy_bucket_allocation},
                                          std::forward<Args>(args)...);
}

std::shared_ptr<Reducer> construct(const std::vector<ReducedParameter>& parameters, Buckets buckets,
                                   const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                   const DdpOptions& options) {
  const int64_t cap = bucket_bytes_cap(options);
  const int64_t first = has_default_cap(options) ? c10d::kDefaultFirstBucketBytes : cap;
  return construct_with(options, parallel::tensors_of(parameters), std::move(buckets), group,
                        sparse_flags(parameters), cap, options.find_unused_parameters,
                        options.gradient_as_bucket_view, names_by_index(parameters), first);
}

// Where the group sums without copies, the buckets move to where it can. Collective; for buckets just made.
void share_buckets(const Reducer& reducer, const ProcessGroup& group) {
  const auto buffers = reducer.buffers();
  if (!buffers.empty()) comm::share(group, buffers);
}

}  // namespace

// What DdpCore holds, and the collectives that training and join share.

struct DdpCore::State {
  std::shared_ptr<torch::nn::Module> module;
  ProcessGroup group;
  DdpOptions options;
  std::vector<parallel::ReducedParameter> parameters;
  std::vector<at::Tensor> buffers;
  at::Device device = at::kCPU;
  std::shared_ptr<Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
  std::shared_ptr<DelayedAllReduce> delayed;  // static graph's first iteration
  std::optional<JoinOptions> joining;         // inside join()
  std::unique_ptr<GradientWatch> watch;       // none in a group of one
  CommHook hook;
  std::string hook_name;
  bool is_timed = true;  // the Reducer measures some steps

  // Python's require_backward_grad_sync and require_forward_param_sync
  bool sync_gradients = true;
  bool sync_buffers = true;

  int rank() const { return group->getRank(); }
  int rank_in_job() const { return comm::rank_in_job(group, rank()); }
  bool watches_unused() const { return options.find_unused_parameters && !options.static_graph; }
  bool in_first_static_iteration() const { return options.static_graph && !delayed->queued; }
  bool will_sync_buffers() const { return sync_buffers && options.syncs_buffers() && !buffers.empty(); }

  /// `buckets`: those of an earlier Reducer; empty: as Python starts.
  void make_reducer(Buckets buckets = {});
  /// Once, after the first backward, in the order in which gradients came; collective.
  void rebuild_buckets();
  void install_hook();
  void stop_timing();
  void list_buffers();
  /// Parameters and, where asked for, buffers become those of one rank.
  void broadcast_module(int from, bool with_buffers);
  void broadcast_buffers(int from);

  at::Tensor all_reduced(double value) const;
  /// The highest rank whose condition holds.
  int common_rank(bool condition) const;

  void notify_join();
  bool any_rank_syncs(bool joined);
  void shadow_step();
  void shadow_until_all_joined();
};

namespace {

constexpr size_t kBroadcastBytes = 250 << 20;

// How c10d calls a CommHook.
class HookAdaptor : public c10d::CppCommHookInterface<CommHook> {
 public:
  using c10d::CppCommHookInterface<CommHook>::CppCommHookInterface;
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    GradBucket view(bucket);
    return state_(view);
  }
};

}  // namespace

void DdpCore::State::make_reducer(Buckets buckets) {
  if (buckets.empty()) buckets = first_buckets(parameters, options);
  auto made = construct(parameters, std::move(buckets), group, options);
  logger = std::make_shared<c10d::Logger>(made);
  made->set_logger(logger);
  reducer = std::move(made);
  const bool on_gpu = options.device && options.device->is_cuda();
  const int gpu = on_gpu ? options.device->index() : -1;
  logger->set_construction_data_and_log(module->name(), on_gpu ? std::vector<int>{gpu} : std::vector<int>{},
                                        gpu, options.syncs_buffers(), has_sync_batchnorm(*module),
                                        options.static_graph);
  if (options.static_graph) {
    reducer->set_static_graph();
    logger->set_static_graph();
  }
  delayed = std::make_shared<DelayedAllReduce>(DelayedAllReduce{.reducer = reducer});
  if (hook) install_hook();
  share_buckets(*reducer, group);
  if (!is_timed) stop_timing();
}

void DdpCore::State::rebuild_buckets() {
  if (reducer->rebuild_buckets()) share_buckets(*reducer, group);
}

void DdpCore::State::stop_timing() {
  is_timed = false;
  reducer->set_ddp_runtime_logging_sample_rate(std::numeric_limits<int>::max());
}

void DdpCore::State::install_hook() {
  logger->set_comm_hook(hook_name);
  reducer->register_comm_hook(std::make_unique<HookAdaptor>(hook));
}

void DdpCore::State::list_buffers() {
  buffers = parallel::tensors_of(parallel::unique_buffers(*module, options.ignore));
}

void DdpCore::State::broadcast_module(int from, bool with_buffers) {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> states;
  for (const auto& [name, parameter] : parallel::unique_parameters(*module, options.ignore))
    states.push_back(parameter.detach());
  if (with_buffers)
    for (const auto& buffer : buffers) states.push_back(buffer.detach());
  if (!states.empty()) c10d::broadcast_coalesced(group, states, kBroadcastBytes, from);
}

void DdpCore::State::broadcast_buffers(int from) {
  at::NoGradGuard no_grad;
  c10d::broadcast_coalesced(group, buffers, kBroadcastBytes, from);
}

// join(): ranks that have run out of batches go on taking part in the others' collectives, one for one.

namespace {

constexpr int64_t kWarnAfterSteps = 1000;

c10::intrusive_ptr<c10d::Work> start_all_reduce(const ProcessGroup& group, at::Tensor tensor,
                                                c10d::ReduceOp op = c10d::ReduceOp::SUM) {
  std::vector<at::Tensor> tensors{std::move(tensor)};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  return group->allreduce(tensors, options);
}

}  // namespace

at::Tensor DdpCore::State::all_reduced(double value) const {
  at::Tensor tensor = at::full({1}, value, at::TensorOptions().device(device).dtype(at::kFloat));
  start_all_reduce(group, tensor)->wait();
  return tensor;
}

int DdpCore::State::common_rank(bool condition) const {
  at::Tensor tensor =
      at::full({1}, condition ? rank() : -1, at::TensorOptions().device(device).dtype(at::kLong));
  start_all_reduce(group, tensor, c10d::ReduceOp::MAX)->wait();
  const auto found = tensor.item<int64_t>();
  if (found < 0) throw Error("no rank is left to broadcast the model", "join");
  return static_cast<int>(found);
}

// Says "I still have input", and hears whether another rank has none where that has to end the training.
void DdpCore::State::notify_join() {
  auto work = start_all_reduce(group, at::full({1}, 1, at::TensorOptions().device(device).dtype(at::kFloat)));
  if (joining->throw_on_early_termination && all_reduced(0).item<float>() != 0)
    throw Error("another rank has run out of input", format("join, rank {}", rank_in_job()),
                "give every rank the same number of batches, or leave throw_on_early_termination out");
  reducer->set_forward_pass_work_handle(work, joining->divide_by_initial_world_size);
}

bool DdpCore::State::any_rank_syncs(bool joined) {
  return all_reduced(!joined && sync_gradients ? 1 : 0).item<float>() != 0;
}

// The collectives of one training step of the others, with zeros for gradients.
void DdpCore::State::shadow_step() {
  rebuild_buckets();
  if (will_sync_buffers()) broadcast_buffers(common_rank(false));
  sync_buffers = any_rank_syncs(/*joined=*/true);
  if (!sync_buffers) return;

  std::vector<GradFuture> reductions;
  auto buckets = reducer->get_grad_buckets(/*return_zero_tensors=*/true);
  for (auto& bucket : buckets) reductions.push_back(reducer->run_comm_hook(bucket));
  for (const auto& reduction : reductions) reduction->waitAndThrow();
  if (watches_unused()) start_all_reduce(group, reducer->get_local_used_map_on_device())->wait();
  reducer->push_rebuilt_params_for_all_indices();
}

void DdpCore::State::shadow_until_all_joined() {
  bool ran_longest = true;
  for (int64_t steps = 0; all_reduced(0).item<float>() != 0; ++steps) {
    if (joining->throw_on_early_termination) {
      all_reduced(1);
      throw Error("this rank has run out of input", format("join, rank {}", rank_in_job()),
                  "give every rank the same number of batches, or leave throw_on_early_termination out");
    }
    if (steps == kWarnAfterSteps)
      log::warning(
          format("rank {} has at least {} batches fewer than others", rank_in_job(), kWarnAfterSteps));
    shadow_step();
    ran_longest = false;
  }
  broadcast_module(common_rank(ran_longest), options.syncs_buffers());
}

void DdpCore::join(const std::function<void()>& training, const JoinOptions& options) {
  if (!options.enable) return training();
  auto& state = *state_;
  if (state.joining)
    throw Error("join() inside join()", "DistributedDataParallel", "call only the outer one");
  state.logger->set_uneven_input_join();
  struct JoinReset {
    State& state;
    ~JoinReset() { state.joining.reset(); }
  } leave{state};
  state.joining = options;
  training();
  state.shadow_until_all_joined();
}

namespace {

at::Device first_device(const torch::nn::Module& module) {
  for (const auto& parameter : module.parameters())
    if (parameter.defined()) return parameter.device();
  return at::kCPU;
}

}  // namespace

DdpCore::DdpCore(std::shared_ptr<torch::nn::Module> module, ProcessGroup group, DdpOptions options)
    : state_(std::make_unique<State>()) {
  if (!module) throw InputError("the module is empty", "DistributedDataParallel", "create it first");
  if (!group)
    throw InputError("the process group is empty", "DistributedDataParallel",
                     "create one with comm::connect");
  comm::read_debug_level();
  auto& state = *state_;
  state.module = std::move(module);
  state.group = std::move(group);
  state.options = std::move(options);
  state.parameters = parallel::reduced_parameters(*state.module, state.options.ignore);
  state.device = first_device(*state.module);
  if (state.options.init_sync) verify_alike(state.group, *state.module, state.options, state.device);
  verify_locally(*state.module, state.parameters, state.options);
  if (state.options.static_graph && state.options.find_unused_parameters)
    log::warning("static_graph finds unused parameters by itself: find_unused_parameters is not needed");
  state.list_buffers();
  if (state.options.init_sync) state.broadcast_module(0, state.options.syncs_first_buffers());
  state.make_reducer();
  if (state.group->getSize() > 1)
    state.watch = std::make_unique<GradientWatch>(state.parameters, state.options.static_graph);
}

DdpCore::~DdpCore() = default;

void DdpCore::before_forward() {
  auto& state = *state_;
  const bool with_gradients = at::GradMode::is_enabled();
  if (with_gradients && !state.sync_gradients && state.in_first_static_iteration())
    throw Error("no_sync() in the first iteration of a static graph", "DistributedDataParallel",
                "let the first iteration synchronize, or leave static_graph out where gradients accumulate");
  if (with_gradients && state.sync_gradients) {
    if (state.watch) state.watch->look_for_moves();
    state.logger->set_runtime_stats_and_log();
    state.reducer->prepare_for_forward();
  }
  if (state.joining) state.notify_join();
  if (with_gradients) with_names(state.group, state.parameters, [&] { state.rebuild_buckets(); });
  if (state.will_sync_buffers()) {
    const int from = state.joining ? state.common_rank(true) : 0;
    state.list_buffers();
    state.broadcast_buffers(from);
  }
  if (state.joining) state.any_rank_syncs(/*joined=*/false);
}

bool DdpCore::watches_outputs() const {
  return state_->watches_unused() || state_->in_first_static_iteration();
}

void DdpCore::after_forward(const std::vector<at::Tensor*>& outputs) {
  auto& state = *state_;
  state.sync_buffers = at::GradMode::is_enabled() && state.sync_gradients;
  if (state.watch && at::GradMode::is_enabled()) state.watch->expect(state.sync_gradients);
  if (state.sync_buffers) {
    std::vector<at::Tensor> searched;
    if (state.watches_unused())
      for (const at::Tensor* output : outputs)
        if (output->defined()) searched.push_back(*output);
    with_names(state.group, state.parameters, [&] { state.reducer->prepare_for_backward(searched); });
  }
  if (watches_outputs()) attach_sink(outputs, state.in_first_static_iteration() ? state.delayed : nullptr);
}

bool DdpCore::syncs() const {
  return state_->sync_gradients;
}

void DdpCore::set_syncs(bool syncs) {
  state_->sync_gradients = syncs;
  if (state_->watch) state_->watch->permit_local(!syncs);
}

void DdpCore::register_comm_hook(CommHook hook, const std::string& name) {
  if (!hook)
    throw InputError("the communication hook is empty", "register_comm_hook",
                     "give a function, or leave the call out for the plain all-reduce");
  if (state_->hook)
    throw InputError("a communication hook is registered already: " + state_->hook_name, "register_comm_hook",
                     "combine the two in one function");
  state_->hook = std::move(hook);
  state_->hook_name = name;
  state_->install_hook();
}

const CommHook& DdpCore::comm_hook() const {
  return state_->hook;
}
const std::string& DdpCore::comm_hook_name() const {
  return state_->hook_name;
}

void DdpCore::stop_timing() {
  state_->stop_timing();
}

void DdpCore::reset() {
  // what a static graph learned from half a first iteration cannot be taken back: begin again
  if (state_->options.static_graph) return state_->make_reducer();
  state_->reducer->reset_state();
}

void DdpCore::check_finalized() const {
  with_names(state_->group, state_->parameters, [&] { state_->reducer->check_finalized(); });
}

void DdpCore::zero_grad(bool set_to_none) {
  if (state_->watch) state_->watch->look_for_moves();
  at::NoGradGuard no_grad;
  for (const auto& [name, parameter] : parallel::unique_parameters(*state_->module)) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (set_to_none) {
      gradient.reset();
    } else if (gradient.defined()) {
      gradient.zero_();
    }
  }
}

void DdpCore::to(c10::Device device) {
  for (const auto& parameter : state_->parameters) {
    const auto there = parameter.tensor.device();
    if (there.type() == device.type() && (!device.has_index() || there == device)) continue;
    throw InputError(format("the model is wrapped, its parameters are on {} and cannot move to {}",
                            there.str(), device.str()),
                     "DistributedDataParallel",
                     "ddp(net, session) moves it to the session's device; leave to() out");
  }
  state_->module->to(device);
}

std::vector<at::Tensor> DdpCore::parameters() const {
  return parallel::tensors_of(parallel::unique_parameters(*state_->module));
}

std::vector<std::pair<std::string, at::Tensor>> DdpCore::named_parameters() const {
  std::vector<std::pair<std::string, at::Tensor>> result;
  for (auto& [name, parameter] : parallel::unique_parameters(*state_->module))
    result.emplace_back(name, parameter);
  return result;
}

std::vector<std::vector<std::string>> DdpCore::bucket_names() const {
  std::unordered_map<c10::TensorImpl*, std::string> names;
  for (const auto& parameter : state_->parameters)
    names[parameter.tensor.unsafeGetTensorImpl()] = parameter.name;
  std::vector<std::vector<std::string>> result;
  for (const auto& bucket : state_->reducer->bucket_parameters()) {
    auto& in_bucket = result.emplace_back();
    for (const auto& parameter : bucket) in_bucket.push_back(names[parameter.unsafeGetTensorImpl()]);
  }
  return result;
}

std::vector<std::vector<std::string>> DdpCore::settle_buckets() {
  with_names(state_->group, state_->parameters, [&] { state_->rebuild_buckets(); });
  return bucket_names();
}

void DdpCore::restore_buckets(const std::vector<std::vector<std::string>>& names) {
  std::unordered_map<std::string, size_t> places;
  for (const auto& parameter : state_->parameters) places.emplace(parameter.name, places.size());
  const size_t known = places.size();
  Buckets buckets;
  size_t placed = 0;
  for (const auto& bucket : names) {
    auto& indices = buckets.emplace_back();
    for (const auto& name : bucket) {
      const auto place = places.extract(name);
      if (place.empty())
        throw InputError(
            "the buckets name '" + name + "', which the model does not have or which appears twice",
            "restore_buckets", "pass what settle_buckets() of the same model returned");
      indices.push_back(place.mapped());
      ++placed;
    }
  }
  if (placed != known)
    throw InputError("the buckets omit parameters", "restore_buckets",
                     "pass what settle_buckets() of the same model returned");
  state_->make_reducer(std::move(buckets));
}

const DdpOptions& DdpCore::options() const {
  return state_->options;
}
const ProcessGroup& DdpCore::group() const {
  return state_->group;
}

}  // namespace lockstep
