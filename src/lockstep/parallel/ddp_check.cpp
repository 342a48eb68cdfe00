#include "lockstep/parallel/ddp_check.h"

#include <c10/util/Exception.h>

#include <set>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::parallel {
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
