#include "lockstep/checkpoint/tree.h"

#include <ATen/core/jit_type.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep {

namespace {

constexpr const char* kInspect =
    "check that it is the right file: `lockstep inspect FILE` lists what a checkpoint holds";

[[noreturn]] void wrong_kind(const std::string& name, const char* wanted, const Tree& value) {
  throw InputError(
      format("\"{}\" in the checkpoint is {} where {} is expected", name, value.tagKind(), wanted), "",
      kInspect);
}

Tree scalar_of(const Tree& value, const std::string& name) {
  if (!value.isTensor()) return value;
  const auto& tensor = value.toTensor();
  if (tensor.numel() != 1) wrong_kind(name, "one number", value);
  if (tensor.is_floating_point()) return tensor.item<double>();
  return tensor.item<int64_t>();
}

}  // namespace

Tree make_dict() {
  return c10::impl::GenericDict(c10::AnyType::get(), c10::AnyType::get());
}

Tree make_list() {
  return c10::impl::GenericList(c10::AnyType::get());
}

Tree make_dict(const std::vector<std::pair<Tree, Tree>>& items) {
  auto dict = make_dict();
  for (const auto& [key, value] : items) put(dict, key, value);
  return dict;
}

Tree make_list(const std::vector<Tree>& items) {
  auto list = make_list();
  for (const auto& item : items) append(list, item);
  return list;
}

void put(const Tree& dict, const Tree& key, const Tree& value) {
  dict.toGenericDict().insert_or_assign(key, value);
}

void append(const Tree& list, const Tree& value) {
  list.toList().push_back(value);
}

std::optional<Tree> find(const Tree& tree, const Tree& key) {
  if (!tree.isGenericDict()) return std::nullopt;
  const auto dict = tree.toGenericDict();
  const auto entry = dict.find(key);
  if (entry == dict.end()) return std::nullopt;
  return entry->value();
}

Tree get(const Tree& tree, const std::string& key) {
  auto value = find(tree, key);
  if (!value) throw InputError(format("the checkpoint has no \"{}\"", key), "", kInspect);
  return *value;
}

std::vector<std::pair<Tree, Tree>> items(const Tree& dict) {
  if (!dict.isGenericDict())
    throw InputError(format("the checkpoint has {} where a dictionary is expected", dict.tagKind()), "",
                     kInspect);
  std::vector<std::pair<Tree, Tree>> all;
  for (const auto& entry : dict.toGenericDict()) all.emplace_back(entry.key(), entry.value());
  return all;
}

std::vector<Tree> elements(const Tree& list) {
  if (list.isTuple()) {
    const auto& values = list.toTupleRef().elements();
    return std::vector<Tree>(values.begin(), values.end());
  }
  if (!list.isList())
    throw InputError(format("the checkpoint has {} where a list is expected", list.tagKind()), "", kInspect);
  const auto values = list.toList().vec();
  return std::vector<Tree>(values.begin(), values.end());
}

double as_double(const Tree& value, const std::string& name) {
  const auto scalar = scalar_of(value, name);
  return scalar.isDouble() ? scalar.toDouble() : static_cast<double>(as_int(scalar, name));
}

int64_t as_int(const Tree& value, const std::string& name) {
  const auto scalar = scalar_of(value, name);
  if (scalar.isBool()) return scalar.toBool();
  if (!scalar.isInt()) wrong_kind(name, "a number", value);
  return scalar.toInt();
}

bool as_bool(const Tree& value, const std::string& name) {
  if (!value.isBool()) wrong_kind(name, "true or false", value);
  return value.toBool();
}

at::Tensor as_tensor(const Tree& value, const std::string& name) {
  if (!value.isTensor()) wrong_kind(name, "a tensor", value);
  return value.toTensor();
}

std::string as_string(const Tree& value, const std::string& name) {
  if (!value.isString()) wrong_kind(name, "text", value);
  return value.toStringRef();
}

}  // namespace lockstep
