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

/// Whether this Reducer can skip parameters that no rank used (libtorch 2.8), and whether each bucket can
/// have a size of its own (2.11). Args are the arguments that every version takes.
template <class Reducer, class... Args>
constexpr bool kReducerSkipsUnused =
    std::is_constructible_v<Reducer, Args..., bool, bool> ||
    std::is_constructible_v<Reducer, Args..., bool, bool, std::vector<std::int64_t>>;
template <class Reducer, class... Args>
constexpr bool kReducerTakesSizes =
    std::is_constructible_v<Reducer, Args..., bool, bool, std::vector<std::int64_t>>;

/// Arguments that this Reducer does not take are left out; a Reducer that is made in another way does not
/// compile.
template <class Reducer, class... Args>
std::shared_ptr<Reducer> construct_reducer(bool skip_unused, std::vector<std::int64_t> sizes,
                                           Args&&... args) {
  constexpr bool kInPython = false;
  if constexpr (kReducerTakesSizes<Reducer, Args...>)
    return std::make_shared<Reducer>(std::forward<Args>(args)..., skip_unused, kInPython, std::move(sizes));
  else if constexpr (kReducerSkipsUnused<Reducer, Args...>)
    return std::make_shared<Reducer>(std::forward<Args>(args)..., skip_unused, kInPython);
  else
    return std::make_shared<Reducer>(std::forward<Args>(args)...);
}

/// A node of the graph, held as this libtorch holds nodes: by a shared_ptr, or by a pointer that counts in
/// the node (2.13).
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
