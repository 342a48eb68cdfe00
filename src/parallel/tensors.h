#pragma once
// Where the tensors are in a value: what a module's forward takes or returns, walked in Python's order.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

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

/// Called with each tensor of a value; may put another in its place.
using TensorVisitor = std::function<void(at::Tensor&)>;

/// The value TorchScript returns, with its lists, tuples and dicts.
void for_each_tensor(c10::IValue& value, const TensorVisitor& visit);

namespace tensors {

// Stands for any value in `T{Anything{}, ...}`: that is how an aggregate's fields are counted.
struct Anything {
  template <class T>
  operator T() const;
};

template <class T, class... Fields>
constexpr int field_count() {
  if constexpr (requires { T{Fields{}..., Anything{}}; } && sizeof...(Fields) < 9) {
    return field_count<T, Fields..., Anything>();
  } else {
    return sizeof...(Fields);
  }
}

template <class T>
constexpr bool has_own_walk = requires(T& value, const TensorVisitor& visit) {
  value.for_each_tensor(visit);
};
template <class T>
constexpr bool is_range = requires(T& value) {
  value.begin(), value.end();
};
template <class T>
constexpr bool is_map = is_range<T>&& requires {
  typename T::mapped_type;
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
// numbers, text and tags; constants cannot be replaced, and vector<bool>'s elements are no references
template <class T>
constexpr bool holds_none =
    std::is_const_v<T> || is_plain<T> || std::is_empty_v<T> || std::is_same_v<T, std::vector<bool>>;
template <class T>
constexpr bool always_false = false;

template <class T>
void walk(T& value, const TensorVisitor& visit);

template <class T>
void walk_fields(T& value, const TensorVisitor& visit) {
  const auto all = [&visit](auto&... fields) { (walk(fields, visit), ...); };
  constexpr int count = field_count<T>();
  static_assert(count > 0,
                "a field cannot be made from one value: give the struct a member for_each_tensor(visit)");
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

template <class T>
void walk(T& value, const TensorVisitor& visit) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    visit(value);
  } else if constexpr (std::is_same_v<T, c10::IValue>) {
    for_each_tensor(value, visit);
  } else if constexpr (holds_none<T>) {
  } else if constexpr (has_own_walk<T>) {
    value.for_each_tensor(visit);
  } else if constexpr (is_map<T>) {
    for (auto& item : value) walk(item.second, visit);
  } else if constexpr (requires { value.begin()->key(), value.begin()->value(); }) {
    for (auto& item : value) walk(item.value(), visit);  // torch::OrderedDict
  } else if constexpr (is_range<T>) {
    for (auto& item : value) walk(item, visit);
  } else if constexpr (is_tuple<T>) {
    std::apply([&visit](auto&... items) { (walk(items, visit), ...); }, value);
  } else if constexpr (is_variant<T>) {
    std::visit([&visit](auto& item) { walk(item, visit); }, value);
  } else if constexpr (is_pointer<T>) {
    if (value) walk(*value, visit);
  } else if constexpr (std::is_aggregate_v<T>) {
    walk_fields(value, visit);
  } else {
    static_assert(always_false<T>,
                  "lockstep cannot see the tensors in this type: give it a member "
                  "`void for_each_tensor(const lockstep::TensorVisitor& visit)` that calls visit for each");
  }
}

}  // namespace tensors

/// Walks tensors, optionals, pairs, tuples, arrays, vectors, maps, variants, pointers, plain structs of these
/// (up to eight fields), and any type with a member `void for_each_tensor(const TensorVisitor&)`.
template <class T>
void for_each_tensor(T& value, const TensorVisitor& visit) {
  tensors::walk(value, visit);
}

}  // namespace lockstep
