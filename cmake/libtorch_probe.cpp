// Compiles where a libtorch has what lockstep needs of it and libtorch promises to nobody: see
// LibtorchProbe.cmake.
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <type_traits>

#include "lockstep/base/libtorch.h"
#include "lockstep/comm/algorithm_backend.h"
#include "lockstep/comm/mpi/backend.h"
#include "lockstep/comm/rendezvous/shared_store.cpp"  // makes a c10d::Store

namespace {

using Reducer = c10d::Reducer;
template <class... Args>
constexpr bool kMadeFrom =
    lockstep::base::reducer_extras<Reducer, Args...>() > 0 || std::is_constructible_v<Reducer, Args...>;

static_assert(kMadeFrom<std::vector<at::Tensor>, std::vector<std::vector<size_t>>,
                        c10::intrusive_ptr<c10d::ProcessGroup>, std::vector<bool>, int64_t, bool, bool,
                        std::unordered_map<size_t, std::string>, int64_t>,
              "DDP's Reducer is made with arguments that lockstep does not know");
static_assert(std::is_constructible_v<c10d::Logger, std::shared_ptr<Reducer>>,
              "DDP's Logger is made with arguments that lockstep does not know");
static_assert(!std::is_abstract_v<lockstep::comm::MpiBackend> &&
                  !std::is_abstract_v<lockstep::comm::AlgorithmBackend>,
              "a process group has to have functions that lockstep's have not");
static_assert(!std::is_abstract_v<lockstep::comm::SharedStore>,
              "a store has to have functions that lockstep's has not");

struct Nothing : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return gradients;
  }
};
static_assert(
    std::is_constructible_v<torch::autograd::Edge, decltype(lockstep::base::make_node<Nothing>()), uint32_t>,
    "autograd holds its nodes in a way that lockstep does not know");

}  // namespace
