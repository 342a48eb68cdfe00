#pragma once
// What differs between the libtorch versions that lockstep is built against, from 2.7 on. The compiler finds
// out; no source asks for a version number.

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::base {

/// What a Reducer takes behind the arguments that every version takes.
struct ReducerExtras {
  bool skip_unused = false;              ///< since libtorch 2.8
  std::vector<std::int64_t> sizes = {};  ///< of each bucket, since 2.11
  bool batched_copy = false;             ///< since 2.12
  bool lazy_buckets = false;             ///< since 2.15
};

/// How many of them this Reducer takes: the versions added one after the other. Args are what all take.
template <class Reducer, class... Args>
constexpr int reducer_extras() {
  using Sizes = std::vector<std::int64_t>;
  if (std::is_constructible_v<Reducer, Args..., bool, bool, Sizes, bool, bool>) return 4;
  if (std::is_constructible_v<Reducer, Args..., bool, bool, Sizes, bool>) return 3;
  if (std::is_constructible_v<Reducer, Args..., bool, bool, Sizes>) return 2;
  return std::is_constructible_v<Reducer, Args..., bool, bool> ? 1 : 0;
}

/// Extras that this Reducer does not take are left out; a Reducer made in another way does not compile.
template <class Reducer, class... Args>
std::shared_ptr<Reducer> construct_reducer(ReducerExtras extras, Args&&... args) {
  constexpr int kTaken = reducer_extras<Reducer, Args...>();
  constexpr bool kInPython = false;
  if constexpr (kTaken == 4)
    return std::make_shared<Reducer>(std::forward<Args>(args)..., extras.skip_unused, kInPython,
                                     std::move(extras.sizes), extras.batched_copy, extras.lazy_buckets);
  else if constexpr (kTaken == 3)
    return std::make_shared<Reducer>(std::forward<Args>(args)..., extras.skip_unused, kInPython,
                                     std::move(extras.sizes), extras.batched_copy);
  else if constexpr (kTaken == 2)
    return std::make_shared<Reducer>(std::forward<Args>(args)..., extras.skip_unused, kInPython,
                                     std::move(extras.sizes));
  else if constexpr (kTaken == 1)
    return std::make_shared<Reducer>(std::forward<Args>(args)..., extras.skip_unused, kInPython);
  else
    return std::make_shared<Reducer>(std::forward<Args>(args)...);
}

/// A node of the graph, held as this libtorch holds nodes: by a shared_ptr, or a counting pointer (2.13).
template <class Node, class... Args>
auto make_node(Args&&... args) {
  using Held = decltype(std::declval<Node&>().getptr());
  if constexpr (std::is_same_v<Held, std::shared_ptr<typename Held::element_type>>)
    return std::shared_ptr<Node>(new Node(std::forward<Args>(args)...), [](auto* node) { deleteNode(node); });
  else
    return c10::make_intrusive<Node>(std::forward<Args>(args)...);
}

// The names of five collectives until 2.13 are forwarded to others since, each to the other where a backend
// has its own for one of them alone. So who calls the collective of a class itself, not of what derives from
// it, has to ask which name is the class's own.
template <class Class, class Owner, class Result, class... Args>
constexpr bool is_own(Result (Owner::*)(Args...)) {
  return std::is_same_v<Class, Owner>;
}

#define LOCKSTEP_RENAMED(name, was)                                   \
  template <class Class, class... Args>                               \
  auto own_##name(Class& object, Args&&... args) {                    \
    if constexpr (requires { requires is_own<Class>(&Class::name); }) \
      return object.Class::name(std::forward<Args>(args)...);         \
    else                                                              \
      return object.Class::was(std::forward<Args>(args)...);          \
  }
LOCKSTEP_RENAMED(all_gather_single, _allgather_base)
LOCKSTEP_RENAMED(all_gather_single_coalesced, allgather_into_tensor_coalesced)
LOCKSTEP_RENAMED(reduce_scatter_single, _reduce_scatter_base)
LOCKSTEP_RENAMED(reduce_scatter_single_coalesced, reduce_scatter_tensor_coalesced)
LOCKSTEP_RENAMED(all_to_all_single, alltoall_base)
#undef LOCKSTEP_RENAMED

/// Of a backend that can be told it (libtorch 2.8).
template <class Backend>
void set_timeout(Backend& backend, std::chrono::milliseconds timeout) {
  if constexpr (requires { backend.setTimeout(timeout); }) backend.setTimeout(timeout);
}

}  // namespace lockstep::base
