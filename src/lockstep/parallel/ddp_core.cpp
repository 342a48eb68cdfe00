#include "lockstep/parallel/ddp_core.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/GradMode.h>

#include <unordered_map>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/connect.h"
#include "lockstep/comm/debug_level.h"
#include "lockstep/parallel/ddp_check.h"
#include "lockstep/parallel/ddp_state.h"

namespace lockstep {
namespace {

// The Reducer's words become the user's, with the parameters' names.
template <class Action>
auto in_words(const DdpCore& core, const std::vector<parallel::ReducedParameter>& parameters,
              const Action& action) {
  try {
    return action();
  } catch (const c10::Error& error) {
    parallel::rethrow_in_words(error, parameters, comm::rank_in_job(core.group(), core.group()->getRank()));
  }
}

at::Device first_device(const torch::nn::Module& module) {
  for (const auto& parameter : module.parameters())
    if (parameter.defined()) return parameter.device();
  return at::kCPU;
}

}  // namespace

DdpCore::DdpCore(std::shared_ptr<torch::nn::Module> module, ProcessGroup group, DdpOptions options)
    : state_(std::make_unique<State>()) {
  if (!module) throw InputError("the module is empty", "DistributedDataParallel", "make it first");
  if (!group)
    throw InputError("the process group is empty", "DistributedDataParallel", "comm::connect gives one");
  comm::read_debug_level();
  auto& state = *state_;
  state.module = std::move(module);
  state.group = std::move(group);
  state.options = std::move(options);
  state.parameters = parallel::reduced_parameters(*state.module, state.options.ignore);
  state.device = first_device(*state.module);
  if (state.options.init_sync)
    parallel::verify_alike(state.group, *state.module, state.parameters, state.options, state.device);
  parallel::verify_locally(*state.module, state.parameters, state.options);
  if (state.options.static_graph && state.options.find_unused_parameters)
    log::warning("static_graph finds unused parameters by itself: find_unused_parameters is not needed");
  state.list_buffers();
  if (state.options.init_sync) state.broadcast_module(0, state.options.syncs_first_buffers());
  state.make_reducer();
  if (state.group->getSize() > 1)
    state.watch = std::make_unique<parallel::GradientWatch>(state.parameters, state.options.static_graph);
}

DdpCore::~DdpCore() = default;

void DdpCore::before_forward() {
  auto& state = *state_;
  const bool with_gradients = at::GradMode::is_enabled();
  if (with_gradients && !state.sync_gradients && state.in_first_static_iteration())
    throw Error("no_sync() in the first iteration of a static graph", "DistributedDataParallel",
                "let the first iteration synchronise, or leave static_graph out where gradients accumulate");
  if (with_gradients && state.sync_gradients) {
    if (state.watch) state.watch->look_for_moves();
    state.logger->set_runtime_stats_and_log();
    state.reducer->prepare_for_forward();
  }
  if (state.joining) state.notify_join();
  if (with_gradients) in_words(*this, state.parameters, [&] { return state.rebuild_buckets(); });
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
    in_words(*this, state.parameters, [&] { state.reducer->prepare_for_backward(searched); });
  }
  if (watches_outputs())
    parallel::put_sink_behind(outputs, state.in_first_static_iteration() ? state.delayed : nullptr);
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
  state_->forget_step();
}

void DdpCore::check_finalized() const {
  in_words(*this, state_->parameters, [&] { state_->reducer->check_finalized(); });
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

std::vector<std::pair<std::string, at::Tensor>> DdpCore::named_parameters() const {
  std::vector<std::pair<std::string, at::Tensor>> result;
  for (auto& [name, parameter] : parallel::unique_parameters(*state_->module))
    result.emplace_back(name, parameter);
  return result;
}

std::map<std::string, std::string> DdpCore::logging_data() const {
  const auto data = state_->logger->get_ddp_logging_data();
  std::map<std::string, std::string> result(data.strs_map.begin(), data.strs_map.end());
  for (const auto& [name, value] : data.ints_map) result[name] = std::to_string(value);
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
  in_words(*this, state_->parameters, [&] { return state_->rebuild_buckets(); });
  return bucket_names();
}

void DdpCore::restore_buckets(const std::vector<std::vector<std::string>>& names) {
  std::unordered_map<std::string, size_t> places;
  for (const auto& parameter : state_->parameters) places.emplace(parameter.name, places.size());
  const size_t known = places.size();
  parallel::Buckets buckets;
  size_t placed = 0;
  for (const auto& bucket : names) {
    auto& indices = buckets.emplace_back();
    for (const auto& name : bucket) {
      const auto place = places.extract(name);
      if (place.empty())
        throw InputError("the buckets name '" + name + "', which is no parameter of this model, or twice",
                         "restore_buckets", "give what settle_buckets() of the same model said");
      indices.push_back(place.mapped());
      ++placed;
    }
  }
  if (placed != known)
    throw InputError("the buckets leave parameters out", "restore_buckets",
                     "give what settle_buckets() of the same model said");
  state_->make_reducer(std::move(buckets));
}

const DdpOptions& DdpCore::options() const {
  return state_->options;
}
const ProcessGroup& DdpCore::group() const {
  return state_->group;
}

}  // namespace lockstep
