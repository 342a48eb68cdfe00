#include "lockstep/parallel/ddp_check.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/own_graph.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/connect.h"
#include "lockstep/comm/group_texts.h"

namespace lockstep::parallel {

// verify_alike: one small all-gather where all ranks agree, and their whole texts where they do not.

namespace {

constexpr const char* kAlike = "build the same module with the same options on every rank";

/// A thing that has to be the same on every rank.
struct Fact {
  std::string subject, value;
};

Fact fact_of(const NamedTensor& parameter) {
  const auto& tensor = parameter.tensor;
  auto value = c10::str(c10::toString(tensor.scalar_type()), " ", tensor.sizes());
  if (!tensor.is_contiguous()) value += c10::str(" with strides ", tensor.strides());
  if (!tensor.requires_grad()) value += ", frozen (requires_grad is false)";
  return {"parameter " + parameter.name, value};
}

std::string graphs_of(const torch::nn::Module& module) {
  std::vector<std::string> digests;
  for (const auto& part : module.modules())
    if (const auto* own = dynamic_cast<const OwnGraph*>(part.get())) digests.push_back(own->graph_digest());
  return digests.empty() ? "none" : base::join(digests, " ");
}

std::vector<Fact> facts_of(const torch::nn::Module& module, const DdpOptions& options) {
  const auto cap = options.bucket_cap_mb;
  std::vector<Fact> facts = {
      {"option find_unused_parameters", format("{}", options.find_unused_parameters)},
      {"option static_graph", format("{}", options.static_graph)},
      {"option broadcast_buffers", format("{}", options.syncs_first_buffers())},
      {"option forward_sync_buffers", format("{}", options.syncs_buffers())},
      {"option skip_all_reduce_unused_params", format("{}", options.skip_all_reduce_unused_params)},
      {"option bucket_cap_mb", cap ? format("{}", *cap) : "unset"},
      {"option bucket_cap_mb_list", c10::str(c10::Join(" ", options.bucket_cap_mb_list))},
      {"option batched_grad_copy", format("{}", options.batched_grad_copy)},
      {"option lazy_bucket_allocation", format("{}", options.lazy_bucket_allocation)},
      {"the graph", graphs_of(module)},
  };
  for (const auto& parameter : unique_parameters(module, options.ignore)) facts.push_back(fact_of(parameter));
  return facts;
}

// FNV-1a over the values: names may differ, as in Python.
int64_t fingerprint(const std::vector<Fact>& facts) {
  uint64_t hash = 14695981039346656037ULL;
  for (const auto& fact : facts)
    for (const char c : fact.value + "\n") hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return static_cast<int64_t>(hash);
}

std::string write(const std::vector<Fact>& facts) {
  std::string result;
  for (const auto& fact : facts) result += fact.subject + "\t" + fact.value + "\n";
  return result;
}

std::vector<Fact> read(const std::string& written) {
  std::vector<Fact> facts;
  std::istringstream lines(written);
  for (std::string line; std::getline(lines, line);) {
    const auto tab = line.find('\t');
    facts.push_back({line.substr(0, tab), line.substr(tab + 1)});
  }
  return facts;
}

// "rank 1 has parameter fc.weight Float [10, 4], rank 0 has parameter fc.weight Float [10, 5]"
std::string first_difference(const std::vector<Fact>& zero, const std::vector<Fact>& other, int first,
                             int rank) {
  const auto text = [](const std::vector<Fact>& facts, size_t i) {
    return i < facts.size() ? facts[i].subject + " " + facts[i].value : "no more parameters";
  };
  for (size_t i = 0; i < std::max(zero.size(), other.size()); ++i) {
    if (i >= zero.size() || i >= other.size() || zero[i].value != other[i].value)
      return format("rank {} has {}, rank {} has {}", rank, text(other, i), first, text(zero, i));
  }
  return {};
}

}  // namespace

void verify_alike(const ProcessGroup& group, const torch::nn::Module& module, const DdpOptions& options,
                  at::Device device) {
  const auto facts = facts_of(module, options);
  const auto fingerprints = comm::all_gather(group, at::tensor(fingerprint(facts), at::kLong), device);
  if (std::ranges::all_of(fingerprints,
                          [&](const at::Tensor& one) { return at::equal(one, fingerprints[0]); }))
    return;
  std::vector<std::vector<Fact>> all;
  for (const auto& written : comm::all_gather(group, write(facts), device)) all.push_back(read(written));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    const auto difference = first_difference(all[0], all[rank], comm::rank_in_job(group, 0),
                                             comm::rank_in_job(group, static_cast<int>(rank)));
    if (!difference.empty()) throw InputError(difference, "DistributedDataParallel", kAlike);
  }
  throw Error("the ranks' parameters differ", "DistributedDataParallel", kAlike);
}

namespace {

std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 20;
  std::string result;
  for (size_t i = 0; i < names.size() && i < kShown; ++i) result += (i ? ", " : "") + names[i];
  if (names.size() > kShown) result += format(" and {} more", names.size() - kShown);
  return result;
}

// The numbers after `key` in the Reducer's message: "…did not receive grad for rank 0: 4 5\n…"
std::vector<size_t> indices_after(const std::string& message, const std::string& key) {
  const auto at = message.find(key);
  const auto colon = at == std::string::npos ? at : message.find(':', at);
  std::vector<size_t> indices;
  if (colon == std::string::npos) return indices;
  std::istringstream numbers(message.substr(colon + 1));
  for (size_t index = 0; numbers >> index;) indices.push_back(index);
  return indices;
}

std::vector<std::string> names_of(const std::vector<size_t>& indices,
                                  const std::vector<ReducedParameter>& parameters) {
  std::vector<std::string> names;
  for (const size_t index : indices)
    names.push_back(index < parameters.size() ? parameters[index].name : format("#{}", index));
  return names;
}

}  // namespace

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
      throw InputError(format("bucket_cap_mb_list holds {}", size), where, "give sizes above 0");
  if (options.bucket_cap_mb && !(*options.bucket_cap_mb >= 0))
    throw InputError(format("bucket_cap_mb is {}", *options.bucket_cap_mb), where,
                     "give 0 for a bucket a parameter, a size in MiB, or leave it out for 25");
}

[[noreturn]] void rethrow_in_words(const std::exception& error,
                                   const std::vector<ReducedParameter>& parameters, int rank) {
  const std::string message = error.what();
  const auto unused = indices_after(message, "did not receive grad for rank");
  if (!unused.empty())
    throw Error(
        format("these parameters had no gradient in the last backward: {}",
               listed(names_of(unused, parameters))),
        format("DistributedDataParallel, rank {}", rank),
        "if they are unused on purpose, set find_unused_parameters (or static_graph, where it is so in every "
        "step); else check that every output of forward takes part in the loss")
        .of(Code::no_gradient, {rank});
  if (message.find("Expected to have finished reduction in the prior iteration") != std::string::npos)
    throw Error("the last step was not finished: some parameters had no gradient, or backward did not run",
                format("DistributedDataParallel, rank {}", rank),
                "set find_unused_parameters if parameters may stay unused; after an exception call reset()")
        .of(Code::no_gradient, {rank});
  throw;
}

}  // namespace lockstep::parallel
