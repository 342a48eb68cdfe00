#pragma once
// Finds the tensors in an argument or result of a module's forward, in Python's order.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <array>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

/// A function that is called with each tensor and may replace it.
using TensorVisitor = std::function<void(at::Tensor&)>;

/// Visits the tensors in a value from TorchScript, with its lists, tuples and dicts. `copies`: lists and
/// dicts are shared, so copy them before replacing their tensors.
void for_each_tensor(c10::IValue& value, const TensorVisitor& visit, bool copies = false);

namespace tensors {

// Converts to any type: `T{Anything{}, ...}` counts an aggregate's fields.
struct AnyConvertible {
  template <class T>
  operator T() const;
};

template <class T, class... Fields>
constexpr int field_count() {
  if constexpr (requires { T{Fields{}..., AnyConvertible{}}; } && sizeof...(Fields) < 9) {
    return field_count<T, Fields..., AnyConvertible>();
  } else {
    return sizeof...(Fields);
  }
}

template <class T>
constexpr bool has_own_walk = requires(T& value, const TensorVisitor& visit) {
  value.for_each_tensor(visit);
};
// visit_tensors(value, visit), a function next to a type that cannot have the member
template <class T>
constexpr bool has_free_walk = requires(T& value, const TensorVisitor& visit) {
  visit_tensors(value, visit);
};
// torch::nn::utils::rnn::PackedSequence
template <class T>
constexpr bool is_packed = requires(T& value) {
  T(value.data(), value.batch_sizes(), value.sorted_indices(), value.unsorted_indices());
};
template <class T>
constexpr bool is_range = requires(T& value) {
  value.begin(), value.end();
};
template <class T>
constexpr bool is_map = is_range<T>&& requires {
  typename T::mapped_type;
};
// torch::OrderedDict
template <class T>
constexpr bool is_ordered_dict = requires(T& value) {
  value.begin()->key(), value.begin()->value();
};
template <class T>
constexpr bool is_tuple = requires {
  std::tuple_size<T>::value;
};
template <class T>
constexpr bool is_plain = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_null_pointer_v<T> ||
                          std::is_convertible_v<T, std::string>;
template <class T>
constexpr bool is_pointer = requires(T& value) {
  *value, static_cast<bool>(value);
};
template <class T>
constexpr bool is_variant = false;
template <class... Ts>
constexpr bool is_variant<std::variant<Ts...>> = true;
// numbers, text and tags; constants cannot be replaced, and the elements of vector<bool> are not references
template <class T>
constexpr bool holds_none =
    std::is_const_v<T> || is_plain<T> || std::is_empty_v<T> || std::is_same_v<T, std::vector<bool>>;
template <class T>
constexpr bool always_false = false;

template <class T, class Each>
void walk_fields(T& value, const Each& each) {
  const auto all = [&each](auto&... fields) { (each(fields), ...); };
  constexpr int count = field_count<T>();
  static_assert(count > 0,
                "lockstep cannot count this struct's fields: give it a member for_each_tensor(visit)");
  static_assert(count < 9, "more than eight fields: give the struct a member for_each_tensor(visit)");
  if constexpr (count == 1) {
    auto& [a] = value;
    all(a);
  } else if constexpr (count == 2) {
    auto& [a, b] = value;
    all(a, b);
  } else if constexpr (count == 3) {
    auto& [a, b, c] = value;
    all(a, b, c);
  } else if constexpr (count == 4) {
    auto& [a, b, c, d] = value;
    all(a, b, c, d);
  } else if constexpr (count == 5) {
    auto& [a, b, c, d, e] = value;
    all(a, b, c, d, e);
  } else if constexpr (count == 6) {
    auto& [a, b, c, d, e, f] = value;
    all(a, b, c, d, e, f);
  } else if constexpr (count == 7) {
    auto& [a, b, c, d, e, f, g] = value;
    all(a, b, c, d, e, f, g);
  } else if constexpr (count == 8) {
    auto& [a, b, c, d, e, f, g, h] = value;
    all(a, b, c, d, e, f, g, h);
  }
}

// Its batch sizes stay on the CPU.
template <class T>
void walk_packed(T& value, const TensorVisitor& visit) {
  at::Tensor data = value.data(), sorted = value.sorted_indices(), unsorted = value.unsorted_indices();
  for (auto* tensor : {&data, &sorted, &unsorted})
    if (tensor->defined()) visit(*tensor);
  value = T(data, value.batch_sizes(), sorted, unsorted);
}

template <class T>
constexpr bool is_optional = false;
template <class T>
constexpr bool is_optional<std::optional<T>> = true;

template <class T>
constexpr bool may_own();

template <class T>
constexpr bool kAnyMayOwn = false;
template <class... Ts>
constexpr bool kAnyMayOwn<std::tuple<Ts...>> = (may_own<std::decay_t<Ts>>() || ...);
template <class A, class B>
constexpr bool kAnyMayOwn<std::pair<A, B>> = may_own<A>() || may_own<B>();
template <class... Ts>
constexpr bool kAnyMayOwn<std::variant<Ts...>> = (may_own<Ts>() || ...);

// Whether a copy of a value has tensors of its own; those behind a pointer are the caller's.
template <class T>
constexpr bool may_own() {
  if constexpr (std::is_same_v<T, at::Tensor> || std::is_same_v<T, c10::IValue> || has_own_walk<T> ||
                has_free_walk<T> || is_packed<T>) {
    return true;
    // which branches are alike depends on the type  NOLINTNEXTLINE(bugprone-branch-clone)
  } else if constexpr (holds_none<T> || std::is_trivially_copyable_v<T>) {
    return false;
  } else if constexpr (is_map<T>) {
    return may_own<typename T::mapped_type>();
  } else if constexpr (is_ordered_dict<T>) {
    return may_own<std::decay_t<decltype(std::declval<T&>().begin()->value())>>();
  } else if constexpr (is_range<T>) {
    using Item = std::decay_t<decltype(*std::declval<T&>().begin())>;
    if constexpr (std::is_same_v<Item, T>)
      return false;  // a tree of itself
    else
      return may_own<Item>();
  } else if constexpr (is_optional<T>) {
    return may_own<typename T::value_type>();
  } else if constexpr (is_tuple<T> || is_variant<T>) {
    return kAnyMayOwn<T>;
  } else if constexpr (std::is_aggregate_v<T>) {
    return field_count<T>() > 0 && field_count<T>() < 9;
  } else {
    return false;
  }
}

// kOwned: `value` is a copy of the caller's; what is not the copy's own, or not known, stays as it is.
template <bool kOwned, class T>
void walk(T& value, const TensorVisitor& visit) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    if (!kOwned || value.defined()) visit(value);
  } else if constexpr (std::is_same_v<T, c10::IValue>) {
    for_each_tensor(value, visit, kOwned);
  } else if constexpr (holds_none<T> || (kOwned && !may_own<T>())) {
  } else if constexpr (has_own_walk<T>) {
    value.for_each_tensor(visit);
  } else if constexpr (has_free_walk<T>) {
    visit_tensors(value, visit);
  } else if constexpr (is_packed<T>) {
    walk_packed(value, visit);
  } else if constexpr (is_map<T>) {
    for (auto& item : value) walk<kOwned>(item.second, visit);
  } else if constexpr (is_ordered_dict<T>) {
    for (auto& item : value) walk<kOwned>(item.value(), visit);
  } else if constexpr (is_range<T>) {
    for (auto& item : value) walk<kOwned>(item, visit);
  } else if constexpr (is_tuple<T>) {
    std::apply([&visit](auto&... items) { (walk<kOwned>(items, visit), ...); }, value);
  } else if constexpr (is_variant<T>) {
    std::visit([&visit](auto& item) { walk<kOwned>(item, visit); }, value);
  } else if constexpr (is_pointer<T>) {
    if (value) walk<kOwned>(*value, visit);
  } else if constexpr (std::is_aggregate_v<T>) {
    walk_fields(value, [&visit](auto& field) { walk<kOwned>(field, visit); });
  } else {
    static_assert(
        always_false<T>,
        "lockstep cannot see the tensors in this type: give it a member "
        "`void for_each_tensor(const lockstep::TensorVisitor& visit)` that calls visit for each, or a "
        "function `visit_tensors(T&, const lockstep::TensorVisitor&)` in its namespace");
  }
}

}  // namespace tensors

/// An argument of a forward with its tensors moved to a device: a copy if it has tensors and a device is
/// given, otherwise the argument itself. Does not move tensors behind a pointer.
template <class Arg>
class DeviceArg {
 public:
  DeviceArg(Arg&& argument, const std::optional<c10::Device>& device) : argument_(argument) {
    if constexpr (kMoves) {
      if (!device) return;
      copy_.emplace(std::forward<Arg>(argument));
      tensors::walk<true>(
          *copy_, [&device](at::Tensor& tensor) { tensor = tensor.to(*device, /*non_blocking=*/true); });
    }
  }
  DeviceArg(DeviceArg&&) = delete;

  /// The argument to pass on.
  Arg&& get() {
    if constexpr (kMoves) {
      if (copy_) return static_cast<Arg&&>(*copy_);
    }
    return static_cast<Arg&&>(argument_);
  }

 private:
  using Value = std::decay_t<Arg>;
  static constexpr bool kMoves = tensors::may_own<Value>() && std::is_constructible_v<Value, Arg>;
  struct Nothing {};

  std::remove_reference_t<Arg>& argument_;
  std::conditional_t<kMoves, std::optional<Value>, Nothing> copy_;
};

/// Deprecated.
template <class Arg>
using Placed [[deprecated("use DeviceArg")]] = DeviceArg<Arg>;

/// Visits tensors, optionals, pairs, tuples, arrays, vectors, maps, variants, pointers, plain structs of
/// these (up to eight fields), a PackedSequence, and any type with a member `void for_each_tensor(const
/// TensorVisitor&)` or a function `void visit_tensors(T&, const TensorVisitor&)` in its namespace.
template <class T>
void for_each_tensor(T& value, const TensorVisitor& visit) {
  tensors::walk<false>(value, visit);
}

}  // namespace lockstep
