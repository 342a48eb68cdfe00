#include "lockstep/parallel/reducer.h"

#include <algorithm>
#include <limits>
#include <span>
#include <unordered_map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/libtorch.h"
#include "lockstep/comm/shared_tensors.h"

namespace lockstep::parallel {
namespace {

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
      tensors_of(parameters), first_limits(options), sparse_flags(parameters)));
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
  return construct_with(options, tensors_of(parameters), std::move(buckets), group, sparse_flags(parameters),
                        cap, options.find_unused_parameters, options.gradient_as_bucket_view,
                        names_by_index(parameters), first);
}

}  // namespace

ReducerAndLogger make_reducer(const std::vector<ReducedParameter>& parameters,
                              const c10::intrusive_ptr<c10d::ProcessGroup>& group, const DdpOptions& options,
                              const torch::nn::Module& module, Buckets buckets) {
  if (buckets.empty()) buckets = first_buckets(parameters, options);
  ReducerAndLogger made;
  made.reducer = construct(parameters, std::move(buckets), group, options);
  made.logger = std::make_shared<c10d::Logger>(made.reducer);
  made.reducer->set_logger(made.logger);
  const std::vector<int> device_ids = options.device && options.device->is_cuda()
                                          ? std::vector<int>{options.device->index()}
                                          : std::vector<int>{};
  made.logger->set_construction_data_and_log(
      module.name(), device_ids, device_ids.empty() ? -1 : device_ids.front(), options.syncs_buffers(),
      has_sync_batchnorm(module), options.static_graph);
  if (options.static_graph) {
    made.reducer->set_static_graph();
    made.logger->set_static_graph();
  }
  return made;
}

std::vector<at::Tensor> Reducer::buffers() const {
  std::vector<at::Tensor> buffers;
  for (const auto& bucket : buckets_) {
    if (bucket.gradients.defined()) buffers.push_back(bucket.gradients);
  }
  return buffers;
}

std::vector<std::vector<at::Tensor>> Reducer::bucket_parameters() const {
  std::vector<std::vector<at::Tensor>> parameters;
  for (const auto& bucket : buckets_) parameters.push_back(bucket.variables);
  return parameters;
}

void share_buckets(const Reducer& reducer, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  const auto buffers = reducer.buffers();
  if (!buffers.empty()) comm::share(group, buffers);
}

}  // namespace lockstep::parallel
