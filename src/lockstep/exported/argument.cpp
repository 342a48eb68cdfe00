#include "lockstep/exported/argument.h"

#include <functional>

#include "lockstep/base/format.h"
#include "lockstep/exported/arithmetic.h"

namespace lockstep::exported {
namespace {

using c10::IValue;
using c10::TypeKind;
using Kind = Argument::Kind;

Argument constant(IValue value) {
  Argument argument;
  argument.value = std::move(value);
  return argument;
}

Argument slot(int number) {
  Argument argument;
  argument.kind = Kind::slot;
  argument.slot = number;
  return argument;
}

Argument list_of(c10::TypePtr element, std::vector<Argument> items) {
  Argument argument;
  argument.kind = Kind::list;
  argument.element = std::move(element);
  argument.items = std::move(items);
  return argument;
}

template <class Each>
Argument read_list(const Json& json, c10::TypePtr element, Each each) {
  std::vector<Argument> items;
  for (const auto& item : json) items.push_back(each(item));
  return list_of(std::move(element), std::move(items));
}

template <class Value, class Each>
IValue read_values(const Json& json, Each each) {
  c10::List<Value> values;
  for (const auto& item : json) values.push_back(each(item));
  return values;
}

Argument named(const Json& json, const SlotNames& names) {
  return slot(names.find(text_at(json, "name")));
}

Argument symbol(const Json& json, const SlotNames& names) {
  const auto [kind, value] = only_field(json);
  if (kind == "as_name") return slot(names.find(value.get<std::string>()));
  if (kind == "as_int") return constant(whole_number(value));
  if (kind == "as_float") return constant(number_of(value));
  if (kind == "as_bool") return constant(value.get<bool>());
  throw Refusal("a size of the graph is of the kind " + shown(kind));
}

Argument optional_tensor(const Json& json, const SlotNames& names) {
  const auto [kind, value] = only_field(json);
  return kind == "as_none" ? constant(IValue()) : named(value, names);
}

Argument device(const Json& json) {
  const auto found = device_of(json);
  auto argument = constant(found);
  if (found.type() != at::kMeta) argument.kind = Kind::device;
  return argument;
}

using Reader = std::function<Argument(const Json&, const SlotNames&)>;

const std::unordered_map<std::string, Reader>& readers() {
  static const std::unordered_map<std::string, Reader> known = {
      {"as_none", [](const Json&, const SlotNames&) { return constant(IValue()); }},
      {"as_tensor", named},
      {"as_optional_tensor", optional_tensor},
      {"as_sym_int", symbol},
      {"as_sym_float", symbol},
      {"as_sym_bool", symbol},
      {"as_int", [](const Json& json, const SlotNames&) { return constant(whole_number(json)); }},
      {"as_float", [](const Json& json, const SlotNames&) { return constant(number_of(json)); }},
      {"as_bool", [](const Json& json, const SlotNames&) { return constant(json.get<bool>()); }},
      {"as_string", [](const Json& json, const SlotNames&) { return constant(json.get<std::string>()); }},
      {"as_complex",
       [](const Json& json, const SlotNames&) {
         return constant(c10::complex<double>(number_of(json.at("real")), number_of(json.at("imag"))));
       }},
      {"as_scalar_type",
       [](const Json& json, const SlotNames&) {
         return constant(static_cast<int64_t>(scalar_type_of(json)));
       }},
      {"as_memory_format",
       [](const Json& json, const SlotNames&) {
         return constant(static_cast<int64_t>(memory_format_of(json)));
       }},
      {"as_layout",
       [](const Json& json, const SlotNames&) { return constant(static_cast<int64_t>(layout_of(json))); }},
      {"as_device", [](const Json& json, const SlotNames&) { return device(json); }},
      {"as_ints",
       [](const Json& json, const SlotNames&) { return constant(read_values<int64_t>(json, whole_number)); }},
      {"as_floats",
       [](const Json& json, const SlotNames&) { return constant(read_values<double>(json, number_of)); }},
      {"as_bools",
       [](const Json& json, const SlotNames&) {
         return constant(read_values<bool>(json, [](const Json& item) { return item.get<bool>(); }));
       }},
      {"as_strings",
       [](const Json& json, const SlotNames&) {
         return constant(
             read_values<std::string>(json, [](const Json& item) { return item.get<std::string>(); }));
       }},
      {"as_tensors",
       [](const Json& json, const SlotNames& names) {
         return read_list(json, c10::TensorType::get(), [&](const Json& item) { return named(item, names); });
       }},
      {"as_optional_tensors",
       [](const Json& json, const SlotNames& names) {
         return read_list(json, c10::OptionalType::ofTensor(),
                          [&](const Json& item) { return optional_tensor(item, names); });
       }},
      {"as_sym_ints",
       [](const Json& json, const SlotNames& names) {
         return read_list(json, c10::IntType::get(), [&](const Json& item) { return symbol(item, names); });
       }},
      {"as_sym_floats",
       [](const Json& json, const SlotNames& names) {
         return read_list(json, c10::FloatType::get(), [&](const Json& item) { return symbol(item, names); });
       }},
      {"as_sym_bools",
       [](const Json& json, const SlotNames& names) {
         return read_list(json, c10::BoolType::get(), [&](const Json& item) { return symbol(item, names); });
       }},
  };
  return known;
}

bool is_number(Holds holds) {
  return holds != Holds::tensor;
}

// Fits an argument to a type, or says that it does not.
class Fitting {
 public:
  explicit Fitting(const SlotNames& names) : names_(names) {}

  bool fit(Argument& argument, c10::TypePtr type, std::optional<int32_t> length) const {
    if (const auto optional = type->cast<c10::OptionalType>()) {
      if (argument.kind == Kind::constant && argument.value.isNone()) return true;
      type = optional->getElementType();
    }
    switch (type->kind()) {
      case TypeKind::TensorType:
        return fit_tensor(argument);
      case TypeKind::ListType:
        return fit_list(argument, type->expectRef<c10::ListType>(), length);
      case TypeKind::FloatType:
        return fit_real(argument);
      case TypeKind::DeviceObjType:
        return argument.kind == Kind::device || argument.value.isDevice();
      case TypeKind::IntType:
        return is(argument, &IValue::isInt, Holds::integer);
      case TypeKind::BoolType:
        return is(argument, &IValue::isBool, Holds::truth);
      case TypeKind::NumberType:
        return argument.kind == Kind::slot ? is_number(holds(argument)) : argument.value.isScalar();
      case TypeKind::StringType:
        return argument.kind == Kind::constant && argument.value.isString();
      default:
        return false;
    }
  }

 private:
  Holds holds(const Argument& argument) const { return names_.holds(argument.slot); }

  bool is(const Argument& argument, bool (IValue::*is_kind)() const, Holds wanted) const {
    if (argument.kind == Kind::slot) return holds(argument) == wanted;
    return argument.kind == Kind::constant && (argument.value.*is_kind)();
  }

  bool fit_tensor(Argument& argument) const {
    if (argument.kind == Kind::slot) {
      if (holds(argument) != Holds::tensor) argument.cast = Cast::to_tensor;
      return true;
    }
    if (argument.kind != Kind::constant || !argument.value.isScalar()) return false;
    argument.value = wrapped_number(argument.value);
    return true;
  }

  bool fit_real(Argument& argument) const {
    if (argument.kind == Kind::slot) {
      argument.cast = Cast::to_real;
      return is_number(holds(argument));
    }
    if (argument.kind == Kind::constant && argument.value.isInt())
      argument.value = static_cast<double>(argument.value.toInt());
    return argument.kind == Kind::constant && argument.value.isDouble();
  }

  bool fit_list(Argument& argument, const c10::ListType& type, std::optional<int32_t> length) const {
    const auto& element = type.getElementType();
    if (argument.kind == Kind::constant && argument.value.isList()) return fit_constants(argument, element);
    if (argument.kind != Kind::list)
      argument = list_of(element, std::vector<Argument>(static_cast<size_t>(length.value_or(1)), argument));
    argument.element = element;
    for (auto& item : argument.items)
      if (!fit(item, element, {})) return false;
    return true;
  }

  static bool fit_constants(Argument& argument, const c10::TypePtr& element) {
    const auto values = argument.value.toListRef();
    if (values.empty()) {
      argument.value = c10::impl::GenericList(element);
      return true;
    }
    switch (element->kind()) {
      case TypeKind::IntType:
        return argument.value.isIntList();
      case TypeKind::BoolType:
        return argument.value.isBoolList();
      case TypeKind::FloatType:
        if (argument.value.isIntList()) {
          const auto whole = argument.value.toIntVector();
          argument.value = std::vector<double>(whole.begin(), whole.end());
        }
        return argument.value.isDoubleList();
      case TypeKind::StringType:
        return values.front().isString();
      case TypeKind::NumberType: {
        c10::impl::GenericList numbers(c10::NumberType::get());
        for (const auto& value : values) {
          if (!value.isScalar()) return false;
          numbers.push_back(value);
        }
        argument.value = numbers;
        return true;
      }
      default:
        return false;
    }
  }

  const SlotNames& names_;
};

// libtorch trusts the numbers of its enumerations, which the schema calls integers.
bool is_of_kind(const Json& json, c10::TypePtr type) {
  const auto& kind = only_field(json).name;
  if (const auto optional = type->cast<c10::OptionalType>()) {
    if (kind == "as_none") return true;
    type = optional->getElementType();
  }
  switch (type->kind()) {
    case TypeKind::ScalarTypeType:
      return kind == "as_scalar_type";
    case TypeKind::LayoutType:
      return kind == "as_layout";
    case TypeKind::MemoryFormatType:
      return kind == "as_memory_format";
    default:
      return true;
  }
}

}  // namespace

int SlotNames::add(const std::string& name, Holds holds) {
  const auto number = static_cast<int>(graph_.slots.size());
  if (!slots_.emplace(name, number).second)
    throw Refusal(format("the graph gives two values the name {}", shown(name)));
  graph_.slots.push_back(holds);
  return number;
}

int SlotNames::find(const std::string& name) const {
  const auto found = slots_.find(name);
  if (found != slots_.end()) return found->second;
  throw Refusal(format("the graph uses {} before anything gives it", shown(name)));
}

Argument read_argument(const Json& json, const SlotNames& names) {
  const auto [kind, value] = only_field(json);
  const auto reader = readers().find(kind);
  if (reader == readers().end()) {
    throw Refusal(format("an argument of the kind {} cannot be read", shown(kind)),
                  "export the model without that, or with a torch that this lockstep knows");
  }
  return reader->second(value, names);
}

Argument read_argument(const Json& json, const c10::Argument& wanted, const SlotNames& names) {
  auto argument = read_argument(json, names);
  if (is_of_kind(json, wanted.real_type()) && Fitting(names).fit(argument, wanted.type(), wanted.N()))
    return argument;
  throw Refusal(format("its argument {} is of the kind {}, and it takes {}", wanted.name(),
                       shown(only_field(json).name), wanted.type()->str()));
}

}  // namespace lockstep::exported
