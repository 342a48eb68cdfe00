#include "fuzz/exported_calls.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

namespace lockstep::fuzz {
namespace {

constexpr std::string_view kListed[] = {
#include "lockstep/exported/operators.inc"
};

constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();
constexpr std::array<int64_t, 18> kEnds = {
    7,     8,         63,        64,        127,         128,       255,        256,   1000,
    65536, INT32_MAX, INT32_MIN, 1LL << 32, (1LL << 31), 1LL << 40, -1LL << 40, kMost, kLeast};
constexpr std::array kTexts = {"none",     "mean",    "sum",      "reflect",   "constant",  "replicate",
                               "circular", "nearest", "bilinear", "floor",     "trunc",     "tanh",
                               "amax",     "prod",    "linear",   "lower",     "higher",    "ij",
                               "xy",       "fro",     "nuc",      "ij,jk->ik", "i...->...", "reduced",
                               "complete", "N",       "",         "left"};

template <class Table>
const auto& one_of(const Table& table, std::mt19937& random) {
  return table[below(std::size(table), random)];
}

const std::vector<c10::OperatorHandle>& listed() {
  static const auto found = [] {
    std::vector<c10::OperatorHandle> all;
    auto names = c10::Dispatcher::singleton().getAllOpNames();
    std::ranges::sort(names, {}, [](const auto& name) { return std::pair(name.name, name.overload_name); });
    constexpr std::string_view space = "aten::";
    for (const auto& name : names) {
      if (!name.name.starts_with(space)) continue;
      if (!std::ranges::binary_search(kListed, std::string_view(name.name).substr(space.size()))) continue;
      const auto handle = c10::Dispatcher::singleton().findSchema(name);
      if (handle && std::ranges::none_of(handle->schema().arguments(), &c10::Argument::is_out))
        all.push_back(*handle);  // the others are refused
    }
    return all;
  }();
  return found;
}

std::string target_of(const c10::OperatorHandle& handle) {
  constexpr size_t space = std::string_view("aten::").size();
  const auto& name = handle.operator_name();
  return "torch.ops.aten." + name.name.substr(space) + "." +
         (name.overload_name.empty() ? "default" : name.overload_name);
}

Json as(const char* kind, Json value) {
  return {{kind, std::move(value)}};
}

class Caller {
 public:
  /// Mostly of one to three tensors: what is calculated with each other is often of one shape.
  Caller(const std::vector<std::string>& tensors, std::mt19937& random) : tensors_(tensors), random_(random) {
    if (tensors.empty() || draw(4) == 0) return;
    tensors_.clear();
    for (auto left = 1 + draw(3); left > 0; --left) tensors_.push_back(one_of(tensors, random));
  }

  Json inputs(const c10::FunctionSchema& schema) {
    auto all = Json::array();
    for (const auto& argument : schema.arguments()) {
      if (argument.default_value() && draw(2)) continue;
      if (auto value = of(argument.real_type(), argument.N()); !value.is_null())
        all.push_back({{"name", argument.name()}, {"arg", std::move(value)}, {"kind", 1}});
    }
    return all;
  }

 private:
  size_t draw(size_t n) { return below(n, random_); }

  Json name() { return {{"name", one_of(tensors_, random_)}}; }
  Json integer() { return some_integer(random_); }

  // null = nothing of that kind can be made up
  Json of(c10::TypePtr type, std::optional<int32_t> length) {
    if (const auto optional = type->cast<c10::OptionalType>()) {
      if (draw(2)) return as("as_none", true);
      type = optional->getElementType();
    }
    switch (type->kind()) {
      case c10::TypeKind::TensorType:
        return draw(12) && !tensors_.empty() ? as("as_tensor", name()) : as("as_int", integer());
      case c10::TypeKind::ListType:
        return list_of(type->expectRef<c10::ListType>().getElementType(), length);
      case c10::TypeKind::IntType:
      case c10::TypeKind::SymIntType:
        return as("as_int", integer());
      case c10::TypeKind::FloatType:
        return as("as_float", some_real(random_));
      case c10::TypeKind::NumberType:
        return draw(2) ? as("as_int", integer()) : as("as_float", some_real(random_));
      case c10::TypeKind::BoolType:
        return as("as_bool", draw(2) == 1);
      case c10::TypeKind::StringType:
        return as("as_string", one_of(kTexts, random_));
      case c10::TypeKind::ScalarTypeType:
        return as("as_scalar_type", 1 + draw(13));
      case c10::TypeKind::MemoryFormatType:
        return as("as_memory_format", 1 + draw(4));
      case c10::TypeKind::LayoutType:
        return as("as_layout", 7);
      case c10::TypeKind::DeviceObjType:
        return as("as_device", {{"type", draw(8) ? "cpu" : "meta"}, {"index", nullptr}});
      default:
        return {};
    }
  }

  template <class Each>
  static Json repeated(size_t count, Each each) {
    auto all = Json::array();
    for (size_t i = 0; i < count; ++i) all.push_back(each());
    return all;
  }

  Json list_of(const c10::TypePtr& element, std::optional<int32_t> length) {
    const auto count = length && draw(8) ? static_cast<size_t>(*length) : draw(5);
    switch (element->kind()) {
      case c10::TypeKind::TensorType:
        return as("as_tensors", repeated(tensors_.empty() ? 0 : count, [&] { return name(); }));
      case c10::TypeKind::OptionalType:
        return as("as_optional_tensors", repeated(tensors_.empty() ? 0 : count, [&] {
                    return draw(3) ? as("as_tensor", name()) : as("as_none", true);
                  }));
      case c10::TypeKind::IntType:
      case c10::TypeKind::SymIntType:
        return as("as_ints", repeated(count, [&] { return integer(); }));
      case c10::TypeKind::FloatType:
      case c10::TypeKind::NumberType:
        return as("as_floats", repeated(count, [&] { return some_real(random_); }));
      case c10::TypeKind::BoolType:
        return as("as_bools", repeated(count, [&] { return Json(draw(2) == 1); }));
      default:
        return {};
    }
  }

  std::vector<std::string> tensors_;
  std::mt19937& random_;
};

Json outputs(const c10::FunctionSchema& schema, const std::string& name) {
  auto all = Json::array();
  for (const auto& result : schema.returns()) {
    const auto own = name + "_" + std::to_string(all.size());
    const auto kind = result.type()->kind();
    if (kind == c10::TypeKind::TensorType)
      all.push_back(as("as_tensor", {{"name", own}}));
    else if (kind == c10::TypeKind::ListType && schema.returns().size() == 1)
      all.push_back(as("as_tensors", {{{"name", own}}}));
    else
      all.push_back(as("as_none", true));
  }
  return all;
}

}  // namespace

int64_t some_integer(std::mt19937& random) {
  constexpr int kSmall = 9, kLeastSmall = -3;
  if (below(6, random)) return static_cast<int64_t>(below(kSmall, random)) + kLeastSmall;
  return one_of(kEnds, random);
}

Json some_real(std::mt19937& random) {
  static const std::vector<Json> known = {0.0,  1.0,   -1.0,  0.5,        -0.25,       2.0,  3.0,
                                          1e30, 1e-30, 1e300, "Infinity", "-Infinity", "NaN"};
  return one_of(known, random);
}

std::string some_operator(std::mt19937& random) {
  return target_of(one_of(listed(), random));
}

Json some_call(const std::vector<std::string>& tensors, const std::string& name, std::mt19937& random) {
  const auto& handle = one_of(listed(), random);
  return {{"target", target_of(handle)},
          {"inputs", Caller(tensors, random).inputs(handle.schema())},
          {"outputs", outputs(handle.schema(), name)},
          {"metadata", Json::object()}};
}

}  // namespace lockstep::fuzz
