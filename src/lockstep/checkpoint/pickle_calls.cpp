#include "lockstep/checkpoint/pickle_calls.h"

#include <cstring>

#include "lockstep/base/format.h"
#include "lockstep/checkpoint/pickle_globals.h"
#include "lockstep/checkpoint/rebuild.h"

namespace lockstep::checkpoint {

namespace {

using Kind = PickleNode::Kind;

template <class Number>
Number decode(const std::string& bytes) {
  Number value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace

NodeId PickleCalls::call(NodeId function, const std::vector<NodeId>& arguments) {
  const auto& name = nodes_[function].text;
  switch (global_kind(name)) {
    case GlobalKind::rebuild_tensor:
      return make_tensor(arguments, false);
    case GlobalKind::rebuild_tensor_v3:
      return make_tensor(arguments, true);
    case GlobalKind::rebuild_subclass:
      return make_subclass(arguments);
    case GlobalKind::dict:
      return make_dictionary(arguments);
    case GlobalKind::list:
      return make_list(arguments);
    case GlobalKind::bytes_of_text:
      return make_bytes(arguments);
    case GlobalKind::numpy_scalar:
      return make_number(arguments);
    case GlobalKind::numpy_dtype:
      return nodes_.add_text(nodes_.text(first_of(arguments)), Kind::object);
    case GlobalKind::rebuild_parameter:
    case GlobalKind::first_argument:
      return first_of(arguments);
    case GlobalKind::object:
      return nodes_.add(Kind::object);
    case GlobalKind::value:
    case GlobalKind::storage:
    case GlobalKind::refused:
      break;
  }
  input_.fail(format("the checkpoint calls {}, which is no function", name),
              "in Python, save state_dict()s and plain values instead of whole objects");
}

NodeId PickleCalls::first_of(const std::vector<NodeId>& arguments) const {
  want(!arguments.empty());
  return arguments[0];
}

NodeId PickleCalls::make_list(const std::vector<NodeId>& arguments) {
  const auto list = nodes_.add(Kind::list);
  const auto values = arguments.empty() ? std::vector<NodeId>() : nodes_[arguments[0]].children;
  nodes_.extend(list, values);
  return list;
}

NodeId PickleCalls::make_dictionary(const std::vector<NodeId>& arguments) {
  const auto dict = nodes_.add(Kind::dict);
  if (arguments.empty() || nodes_[arguments[0]].kind == Kind::global) return dict;  // a defaultdict's factory
  const auto source = nodes_[arguments[0]].children;
  if (nodes_[arguments[0]].kind == Kind::dict) {
    nodes_.set_items(dict, source);
    return dict;
  }
  for (const auto pair : source) {
    const auto values = nodes_[pair].children;
    want(values.size() == 2);
    nodes_.set_items(dict, values);
  }
  return dict;
}

NodeId PickleCalls::make_subclass(const std::vector<NodeId>& arguments) {
  want(arguments.size() >= 3 && nodes_[arguments[0]].kind == Kind::global);
  want(global_kind(nodes_[arguments[0]].text) != GlobalKind::rebuild_subclass);
  const auto inner = nodes_[arguments[2]].children;
  return call(arguments[0], inner);
}

NodeId PickleCalls::make_tensor(const std::vector<NodeId>& arguments, bool has_dtype) {
  want(arguments.size() >= (has_dtype ? 7u : 4u) && nodes_[arguments[0]].kind == Kind::storage);
  const auto& storage = nodes_[arguments[0]];
  TensorClaim claim{.dtype = static_cast<at::ScalarType>(storage.integer),
                    .offset = nodes_.integer(arguments[1]),
                    .sizes = nodes_.integers(arguments[2]),
                    .strides = nodes_.integers(arguments[3])};
  if (has_dtype) {
    const auto dtype = dtype_of_global(nodes_[arguments[6]].text);
    want(dtype.has_value());
    claim.dtype = *dtype;
  }
  const auto bytes = storage.tensor;
  return nodes_.add_tensor(rebuild_tensor(bytes, claim, input_));
}

/// Latin-1 from UTF-8: each character is a byte.
NodeId PickleCalls::make_bytes(const std::vector<NodeId>& arguments) {
  const auto& utf8 = nodes_.text(first_of(arguments));
  std::string bytes;
  for (size_t i = 0; i < utf8.size(); ++i) {
    const auto lead = static_cast<uint8_t>(utf8[i]);
    if (lead < 0x80) {
      bytes += utf8[i];
    } else {
      want((lead == 0xc2 || lead == 0xc3) && i + 1 < utf8.size());
      bytes += static_cast<char>((lead << 6) | (static_cast<uint8_t>(utf8[++i]) & 0x3f));
    }
  }
  return nodes_.add_text(bytes);
}

/// numpy.float64(0.98) and the like, which training scripts often leave in checkpoints.
NodeId PickleCalls::make_number(const std::vector<NodeId>& arguments) {
  want(arguments.size() == 2 && nodes_[arguments[0]].kind == Kind::object);
  const auto& code = nodes_[arguments[0]].text;
  const auto& bytes = nodes_[arguments[1]].text;
  if (code == "f8" && bytes.size() == 8) return nodes_.add_real(decode<double>(bytes));
  if (code == "f4" && bytes.size() == 4) return nodes_.add_real(decode<float>(bytes));
  if (code == "i4" && bytes.size() == 4) return nodes_.add_integer(decode<int32_t>(bytes));
  if (code == "i8" && bytes.size() == 8) return nodes_.add_integer(decode<int64_t>(bytes));
  return nodes_.add(Kind::none);
}

NodeId PickleCalls::storage(NodeId id) {
  const auto parts = nodes_[id].children;  // ("storage", class, key, location, numel[, view])
  want(nodes_[id].kind == Kind::tuple && parts.size() >= 5 && nodes_.text(parts[0]) == "storage");
  want(nodes_[parts[1]].kind == Kind::global);
  if (parts.size() > 5 && nodes_[parts[5]].kind != Kind::none) {
    input_.fail("the file shares a storage in the manner of PyTorch before 0.4",
                "load and save it again in Python");
  }
  const auto dtype = dtype_of_global(nodes_[parts[1]].text);
  if (!dtype)
    input_.fail(format("the file holds a {}, which is not supported", nodes_[parts[1]].text),
                "in Python, dequantize() it, or convert it to a plain dtype, and save it again");
  auto bytes = load_storage_({nodes_.text(parts[2]), *dtype, nodes_.integer(parts[4])});
  return nodes_.add(
      PickleNode{.kind = Kind::storage, .integer = static_cast<int64_t>(*dtype), .tensor = std::move(bytes)});
}

}  // namespace lockstep::checkpoint
