#include "lockstep/checkpoint/unpickle.h"

#include <torch/types.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/base/format.h"
#include "lockstep/base/memory.h"

namespace lockstep::checkpoint {
namespace {

// The names that a checkpoint's pickle may mention, and what each means here. Nothing is imported or called.

enum class Global {
  rebuild_tensor,     // (storage, offset, size, stride, ...)
  rebuild_tensor_v3,  // the same, with the dtype as seventh argument
  rebuild_parameter,  // (tensor, ...): the tensor
  rebuild_subclass,   // (function, type, arguments, state): the function's result
  dict,               // an empty dictionary, or one made from pairs
  list,               // the first argument's elements, or none
  first_argument,     // torch.Size, torch.device
  bytes_of_text,      // _codecs.encode(text, "latin1"), protocol 2's way to write bytes
  numpy_scalar,
  numpy_dtype,
  value,   // a dtype or a class, never called
  object,  // harmless and not understood: read as the dictionary of its attributes
  refused,
};

const std::map<std::string_view, Global> kGlobals = {
    {"torch._utils._rebuild_tensor", Global::rebuild_tensor},
    {"torch._utils._rebuild_tensor_v2", Global::rebuild_tensor},
    {"torch._utils._rebuild_tensor_v3", Global::rebuild_tensor_v3},
    {"torch._utils._rebuild_parameter", Global::rebuild_parameter},
    {"torch._utils._rebuild_parameter_with_state", Global::rebuild_parameter},
    {"torch._tensor._rebuild_from_type_v2", Global::rebuild_subclass},
    {"torch.nn.parameter.Parameter", Global::rebuild_parameter},
    {"torch.nn.parameter.Buffer", Global::rebuild_parameter},
    {"torch.Tensor", Global::value},
    {"torch.Size", Global::first_argument},
    {"torch.device", Global::first_argument},
    {"torch.serialization._get_layout", Global::first_argument},
    {"_codecs.encode", Global::bytes_of_text},
    {"collections.OrderedDict", Global::dict},
    {"collections.defaultdict", Global::dict},
    {"collections.Counter", Global::dict},
    {"builtins.dict", Global::dict},
    {"builtins.list", Global::list},
    {"builtins.tuple", Global::list},
    {"builtins.set", Global::list},
    {"builtins.frozenset", Global::list},
    {"builtins.bytes", Global::list},
    {"builtins.complex", Global::object},
    {"builtins.bytearray", Global::object},
    {"builtins.int", Global::value},
    {"builtins.float", Global::value},
    {"builtins.str", Global::value},
    {"argparse.Namespace", Global::object},
    {"types.SimpleNamespace", Global::object},
    {"pathlib.PosixPath", Global::object},
    {"pathlib.PurePosixPath", Global::object},
    {"datetime.datetime", Global::object},
    {"datetime.timedelta", Global::object},
    {"numpy.dtype", Global::numpy_dtype},
    {"numpy.core.multiarray.scalar", Global::numpy_scalar},
    {"numpy._core.multiarray.scalar", Global::numpy_scalar},
    {"numpy.ndarray", Global::object},
    {"numpy.core.multiarray._reconstruct", Global::object},
    {"numpy._core.multiarray._reconstruct", Global::object},
};

/// "torch.float32" and "FloatStorage".
std::map<std::string, at::ScalarType, std::less<>> make_dtype_names() {
  std::map<std::string, at::ScalarType, std::less<>> names = {{"UntypedStorage", at::kByte},
                                                              {"_UntypedStorage", at::kByte}};
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
                           at::kChar, at::kByte, at::kUInt16, at::kUInt32, at::kUInt64, at::kBool,
                           at::kComplexFloat, at::kComplexDouble, at::kFloat8_e4m3fn, at::kFloat8_e5m2}) {
    names[format("torch.{}", c10::getDtypeNames(dtype).first)] = dtype;
    names[format("{}Storage", c10::toString(dtype))] = dtype;
  }
  return names;
}

/// The dtype of "torch.float32", "torch.FloatStorage" or "torch.cuda.FloatStorage".
std::optional<at::ScalarType> dtype_of(std::string_view name) {
  static const auto known = make_dtype_names();
  const auto found = known.find(name.ends_with("Storage") ? name.substr(name.rfind('.') + 1) : name);
  if (found == known.end() || !name.starts_with("torch.")) return std::nullopt;
  return found->second;
}

Global meaning_of(const std::string& name) {
  if (const auto found = kGlobals.find(name); found != kGlobals.end()) return found->second;
  if (dtype_of(name)) return Global::value;
  // Schedulers and layers pickled whole; their attributes are what a state_dict would hold.
  for (const auto harmless : {"torch.optim.", "torch.nn.modules.", "numpy.dtypes."})
    if (name.starts_with(harmless)) return Global::object;
  return Global::refused;
}

// The values that the unpickler works on. A container is frozen once it is part of another one, so there are
// no cycles, and depth, memory and weight (the memory when shared parts are written out) stay bounded.

using NodeId = uint32_t;
enum class Kind { none, plain, integer, text, list, tuple, dict, object, global, numpy, storage, tensor };

struct Node {
  Kind kind = Kind::none;
  bool frozen = false;
  int depth = 1;
  uint64_t weight = 0;
  Tree tree = {};                     // what it is to the caller; of a global its name
  std::vector<NodeId> children = {};  // a dictionary's keys and values alternate
  at::Tensor bytes = {};              // a storage's
  at::ScalarType dtype = at::kByte;   // a storage's
};

class Nodes {
 public:
  explicit Nodes(const Cursor& input)
      : input_(input),
        heaviest_(base::kHeldAlways + base::kHeldPerByte * (input.position() + input.left())),
        allowance_(input.position() + input.left()) {}

  NodeId add(Node node, size_t text_size = 0) {
    node.weight = cost_of(node.kind) + 2 * text_size;
    hold(node.weight);
    all_.push_back(std::move(node));
    return static_cast<NodeId>(all_.size() - 1);
  }
  NodeId add_none() { return add({}); }
  NodeId add_list() { return add({.kind = Kind::list, .tree = make_list()}); }
  NodeId add_dict(Kind kind = Kind::dict) { return add({.kind = kind, .tree = make_dict()}); }
  NodeId add_integer(int64_t value) { return add({.kind = Kind::integer, .tree = value}); }
  NodeId add_real(double value) { return add({.kind = Kind::plain, .tree = value}); }
  NodeId add_text(std::string_view text, Kind kind = Kind::text) {
    return add({.kind = kind, .tree = std::string(text)}, text.size());
  }
  NodeId add_tuple(const std::vector<NodeId>& children) {
    const auto tuple = add({.kind = Kind::tuple});
    std::vector<Tree> trees;
    for (const auto child : children) {
      place(tuple, child);
      trees.push_back(all_[child].tree);
    }
    all_[tuple].tree = c10::ivalue::Tuple::create(std::move(trees));
    return tuple;
  }

  /// Counts memory that the pickle makes its reader hold besides the nodes.
  void hold(uint64_t bytes) {
    if (!allowance_.take(bytes)) too_many();
  }

  void extend(NodeId list, const std::vector<NodeId>& values) {
    want(all_[list].kind == Kind::list);
    for (const auto value : values) {
      place(list, value);
      append(all_[list].tree, all_[value].tree);
    }
  }
  void set_items(NodeId dict, const std::vector<NodeId>& keys_and_values) {
    const auto kind = all_[dict].kind;
    want((kind == Kind::dict || kind == Kind::object) && keys_and_values.size() % 2 == 0);
    for (size_t i = 0; i < keys_and_values.size(); i += 2) {
      const auto key = keys_and_values[i], value = keys_and_values[i + 1];
      const auto& tree = all_[key].tree;
      if (all_[key].kind == Kind::global ||
          !(tree.isString() || tree.isInt() || tree.isBool() || tree.isDouble()))
        input_.fail("the pickle holds a dictionary whose keys are neither text nor numbers",
                    "in Python, save it with text or numbers for keys");
      place(dict, key);
      place(dict, value);
      put(all_[dict].tree, tree, all_[value].tree);
    }
  }

  /// The file is damaged if this does not hold.
  void want(bool holds) const {
    if (!holds) input_.fail("the file is damaged: its pickle is inconsistent");
  }
  int64_t integer(NodeId id) const {
    want(all_[id].kind == Kind::integer);
    return all_[id].tree.toInt();
  }
  std::vector<int64_t> integers(NodeId id) const {
    want(all_[id].kind == Kind::tuple || all_[id].kind == Kind::list);
    std::vector<int64_t> values;
    for (const auto child : all_[id].children) values.push_back(integer(child));
    return values;
  }
  const std::string& text(NodeId id, Kind kind = Kind::text) const {
    want(all_[id].kind == kind);
    return all_[id].tree.toStringRef();
  }

  Node& operator[](NodeId id) { return all_[id]; }

 private:
  static constexpr int kDeepest = 100;
  // What a value costs, in bytes: measured, rounded up.
  static constexpr uint64_t kPlain = sizeof(Node) + sizeof(NodeId);
  static constexpr uint64_t kPlace = sizeof(Tree) + 2 * sizeof(NodeId);  // in a container
  static constexpr uint64_t kList = 100, kDict = 500, kTensor = 500;

  static uint64_t cost_of(Kind kind) {
    if (kind == Kind::list || kind == Kind::tuple) return kPlain + kList;
    if (kind == Kind::dict || kind == Kind::object) return kPlain + kDict;
    return kPlain + (kind == Kind::tensor || kind == Kind::storage ? kTensor : 0);
  }

  [[noreturn]] void too_many() const {
    input_.fail("the pickle holds too many small values for its size",
                "in Python, save long lists as tensors");
  }

  /// Counts a child as part of a container that is not part of another one yet.
  void place(NodeId container, NodeId child) {
    auto& outer = all_[container];
    auto& inner = all_[child];
    if (outer.frozen || container == child)
      input_.fail("the pickle holds a structure that contains itself",
                  "in Python, save state_dict()s and plain values in its place");
    inner.frozen = true;
    outer.depth = std::max(outer.depth, inner.depth + 1);
    outer.weight += kPlace + inner.weight;
    hold(kPlace);
    if (outer.depth > kDeepest)
      input_.fail("the pickle is nested too deeply", "in Python, save flatter dictionaries and lists");
    if (outer.weight > heaviest_) too_many();
    outer.children.push_back(child);
  }

  const Cursor& input_;
  const uint64_t heaviest_;
  base::Allowance allowance_;
  std::deque<Node> all_;  // grows without a second copy
};

template <class Number>
Number decode(const std::string& bytes) {
  Number value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

/// The stack machine that a pickle is written for.
class Unpickler {
 public:
  Unpickler(Cursor& input, const StorageLoader& load_storage)
      : input_(input), load_storage_(load_storage), nodes_(input) {}

  Tree run() {
    while (!stopped_) step(input_.number<uint8_t>());
    return nodes_[pop()].tree;
  }

 private:
  // The opcodes that a checkpoint may hold; the comments are their names in Python's pickletools.
  void step(uint8_t op) {
    switch (op) {
      case 0x80:  // PROTO
        if (input_.number<uint8_t>() > 5)
          input_.fail("the pickle uses a protocol newer than 5",
                      "in Python, save it again with torch.save and its default pickle_protocol");
        return;
      case 0x95:  // FRAME
        return input_.skip(8);
      case '.':  // STOP
        stopped_ = true;
        return;

      case 'N':  // NONE
        return push(nodes_.add_none());
      case 0x88:  // NEWTRUE
      case 0x89:  // NEWFALSE
        return push(nodes_.add({.kind = Kind::plain, .tree = op == 0x88}));
      case 'J':  // BININT
        return push(nodes_.add_integer(input_.number<int32_t>()));
      case 'K':  // BININT1
        return push(nodes_.add_integer(input_.number<uint8_t>()));
      case 'M':  // BININT2
        return push(nodes_.add_integer(input_.number<uint16_t>()));
      case 0x8a:  // LONG1
        return push_long(input_.take(input_.number<uint8_t>()));
      case 0x8b:  // LONG4
        return push_long(input_.take(input_.number<uint32_t>()));
      case 'G':  // BINFLOAT, big-endian
        return push(nodes_.add_real(std::bit_cast<double>(__builtin_bswap64(input_.number<uint64_t>()))));
      case 'U':   // SHORT_BINSTRING
      case 'C':   // SHORT_BINBYTES
      case 0x8c:  // SHORT_BINUNICODE
        return push(nodes_.add_text(input_.text(input_.number<uint8_t>())));
      case 'X':  // BINUNICODE
      case 'B':  // BINBYTES
      case 'T':  // BINSTRING
        return push(nodes_.add_text(input_.text(input_.number<uint32_t>())));
      case 0x8d:  // BINUNICODE8
      case 0x8e:  // BINBYTES8
      case 0x96:  // BYTEARRAY8
        return push(nodes_.add_text(input_.text(input_.number<uint64_t>())));

      case '(':  // MARK
        return marks_.push_back(stack_.size());
      case '0':  // POP
        pop();
        return;
      case '1':  // POP_MARK
        pop_mark();
        return;
      case '2':  // DUP
        return push(top());

      case ')':  // EMPTY_TUPLE
        return push(nodes_.add_tuple({}));
      case 0x85:  // TUPLE1
      case 0x86:  // TUPLE2
      case 0x87:  // TUPLE3
        return push_tuple(op - 0x84u);
      case 't':   // TUPLE
      case 0x91:  // FROZENSET
        return push(nodes_.add_tuple(pop_mark()));
      case ']':   // EMPTY_LIST
      case 0x8f:  // EMPTY_SET
        return push(nodes_.add_list());
      case 'a': {  // APPEND
        const auto value = pop();
        return nodes_.extend(top(), {value});
      }
      case 'e':     // APPENDS
      case 0x90: {  // ADDITEMS
        const auto values = pop_mark();
        return nodes_.extend(top(), values);
      }
      case '}':  // EMPTY_DICT
        return push(nodes_.add_dict());
      case 's': {  // SETITEM
        const auto value = pop(), key = pop();
        return nodes_.set_items(top(), {key, value});
      }
      case 'u': {  // SETITEMS
        const auto values = pop_mark();
        return nodes_.set_items(top(), values);
      }

      case 'q':  // BINPUT
        return remember(input_.number<uint8_t>());
      case 'r':  // LONG_BINPUT
        return remember(input_.number<uint32_t>());
      case 0x94:  // MEMOIZE
        return remember(memo_.size());
      case 'h':  // BINGET
        return recall(input_.number<uint8_t>());
      case 'j':  // LONG_BINGET
        return recall(input_.number<uint32_t>());

      case 'c': {  // GLOBAL
        const auto module = input_.line();
        return push_global(module == "__builtin__" ? "builtins" : module, input_.line());
      }
      case 0x93: {  // STACK_GLOBAL
        const auto name = pop(), module = pop();
        return push_global(nodes_.text(module), nodes_.text(name));
      }
      case 'Q':  // BINPERSID
        return push(storage(pop()));
      case 0x92:  // NEWOBJ_EX
        pop();    // keyword arguments
        return call();
      case 'R':   // REDUCE
      case 0x81:  // NEWOBJ
        return call();
      case 'b':  // BUILD
        return build();
      default:
        input_.fail(format("the pickle holds the opcode {:#04x}, which no checkpoint needs", op),
                    "in Python, load it and save it again with torch.save");
    }
  }

  void push(NodeId id) { stack_.push_back(id); }

  NodeId& top() {
    want(stack_.size() > floor());
    return stack_.back();
  }

  NodeId pop() {
    const auto id = top();
    stack_.pop_back();
    return id;
  }

  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  std::vector<NodeId> pop_mark() {
    want(!marks_.empty());
    const auto start = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<NodeId> values(start, stack_.end());
    stack_.erase(start, stack_.end());
    marks_.pop_back();
    return values;
  }

  void push_tuple(size_t count) {
    want(stack_.size() >= floor() + count);
    const std::vector<NodeId> values(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    push(nodes_.add_tuple(values));
  }

  /// Two's complement, little-endian. What does not fit 64 bits becomes text: nothing here computes with it.
  void push_long(std::span<const uint8_t> bytes) {
    const auto negative = !bytes.empty() && (bytes.back() & 0x80);
    auto value = negative ? ~uint64_t{0} : uint64_t{0};
    const auto used = std::min<size_t>(bytes.size(), 8);
    for (size_t i = used; i-- > 0;) value = (value << 8) | bytes[i];
    auto fits = (static_cast<int64_t>(value) < 0) == negative;
    for (size_t i = used; i < bytes.size(); ++i) fits = fits && bytes[i] == (negative ? 0xff : 0);
    if (fits) return push(nodes_.add_integer(static_cast<int64_t>(value)));
    std::string digits;
    for (size_t i = bytes.size(); i-- > 0;) digits += format("{:02x}", bytes[i]);
    push(nodes_.add_text("0x" + digits));
  }

  void remember(uint64_t index) {
    constexpr uint64_t kMemoEntry = 64;
    if (memo_.insert_or_assign(index, top()).second) nodes_.hold(kMemoEntry);
  }

  void recall(uint64_t index) {
    const auto found = memo_.find(index);
    want(found != memo_.end());
    push(found->second);
  }

  void push_global(std::string_view module, std::string_view of_module) {
    const auto name = format("{}.{}", module, of_module);
    if (meaning_of(name) == Global::refused)
      input_.fail(
          format("the checkpoint uses {}, which is not on the list of safe names; nothing was executed",
                 name),
          "in Python, save state_dict()s and plain values instead of whole objects");
    push(nodes_.add_text(name, Kind::global));
  }

  void call() {
    const auto arguments = pop(), function = pop();
    want(nodes_[arguments].kind == Kind::tuple);
    const auto values = nodes_[arguments].children;
    push(result_of(function, values));
  }

  // What a pickle's calls mean: each name stands for a small function here. Nothing else is called.

  /// What the function that a global names would return.
  NodeId result_of(NodeId function, const std::vector<NodeId>& arguments) {
    const auto& name = nodes_.text(function, Kind::global);
    switch (meaning_of(name)) {
      case Global::rebuild_tensor:
        return make_tensor(arguments, false);
      case Global::rebuild_tensor_v3:
        return make_tensor(arguments, true);
      case Global::rebuild_subclass: {  // (function, type, arguments, state)
        want(arguments.size() >= 3);
        want(meaning_of(nodes_.text(arguments[0], Kind::global)) != Global::rebuild_subclass);
        const auto inner = nodes_[arguments[2]].children;
        return result_of(arguments[0], inner);
      }
      case Global::dict:
        return make_dictionary(arguments);
      case Global::list: {
        const auto list = nodes_.add_list();
        const auto values = arguments.empty() ? std::vector<NodeId>() : nodes_[arguments[0]].children;
        nodes_.extend(list, values);
        return list;
      }
      case Global::bytes_of_text:
        return make_bytes(arguments);
      case Global::numpy_scalar:
        return make_number(arguments);
      case Global::numpy_dtype:
        return nodes_.add_text(nodes_.text(first_of(arguments)), Kind::numpy);
      case Global::rebuild_parameter:
      case Global::first_argument:
        return first_of(arguments);
      case Global::object:
        return nodes_.add_dict(Kind::object);
      case Global::value:
      case Global::refused:
        break;
    }
    input_.fail(format("the checkpoint calls {}, which is not a function", name),
                "in Python, save state_dict()s and plain values instead of whole objects");
  }

  /// What a persistent id stands for: ("storage", class, key, location, numel[, view]).
  NodeId storage(NodeId id) {
    const auto parts = nodes_[id].children;
    want(nodes_[id].kind == Kind::tuple && parts.size() >= 5 && nodes_.text(parts[0]) == "storage");
    const auto& type = nodes_.text(parts[1], Kind::global);
    if (parts.size() > 5 && nodes_[parts[5]].kind != Kind::none)
      input_.fail("the file shares a storage in the format of PyTorch before 0.4",
                  "load and save it again in Python");
    const auto dtype = dtype_of(type);
    if (!dtype)
      input_.fail(format("the file holds a {}, which is not supported", type),
                  "in Python, dequantize() it, or convert it to a plain dtype, and save it again");
    auto bytes = load_storage_({nodes_.text(parts[2]), *dtype, nodes_.integer(parts[4])});
    return nodes_.add({.kind = Kind::storage, .bytes = std::move(bytes), .dtype = *dtype});
  }

  void want(bool holds) const { nodes_.want(holds); }

  NodeId first_of(const std::vector<NodeId>& arguments) const {
    want(!arguments.empty());
    return arguments[0];
  }

  NodeId make_dictionary(const std::vector<NodeId>& arguments) {
    const auto dict = nodes_.add_dict();
    if (arguments.empty() || nodes_[arguments[0]].kind == Kind::global)
      return dict;  // a defaultdict's factory
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

  NodeId make_tensor(const std::vector<NodeId>& arguments, bool has_dtype) {
    want(arguments.size() >= (has_dtype ? 7u : 4u) && nodes_[arguments[0]].kind == Kind::storage);
    const auto& storage = nodes_[arguments[0]];
    TensorClaim claim{.dtype = storage.dtype,
                      .offset = nodes_.integer(arguments[1]),
                      .sizes = nodes_.integers(arguments[2]),
                      .strides = nodes_.integers(arguments[3])};
    if (has_dtype) {
      const auto dtype = dtype_of(nodes_.text(arguments[6], Kind::global));
      want(dtype.has_value());
      claim.dtype = *dtype;
    }
    return nodes_.add({.kind = Kind::tensor, .tree = rebuild_tensor(storage.bytes, claim, input_)});
  }

  /// Latin-1 from UTF-8: each character is a byte.
  NodeId make_bytes(const std::vector<NodeId>& arguments) {
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
  NodeId make_number(const std::vector<NodeId>& arguments) {
    want(arguments.size() == 2);
    if (nodes_[arguments[0]].kind != Kind::numpy || nodes_[arguments[1]].kind != Kind::text)
      return nodes_.add_none();
    const auto& code = nodes_.text(arguments[0], Kind::numpy);
    const auto& bytes = nodes_.text(arguments[1]);
    if (code == "f8" && bytes.size() == 8) return nodes_.add_real(decode<double>(bytes));
    if (code == "f4" && bytes.size() == 4) return nodes_.add_real(decode<float>(bytes));
    if (code == "i4" && bytes.size() == 4) return nodes_.add_integer(decode<int32_t>(bytes));
    if (code == "i8" && bytes.size() == 8) return nodes_.add_integer(decode<int64_t>(bytes));
    return nodes_.add_none();
  }

  /// What follows REDUCE: an object's attributes. Those of tensors and dictionaries are not needed.
  void build() {
    const auto state = pop();
    auto& object = nodes_[top()];
    const auto values = nodes_[state].children;
    if (object.kind == Kind::object && nodes_[state].kind == Kind::dict) {
      nodes_.set_items(top(), values);
    } else if (object.kind == Kind::numpy) {
      for (const auto part : values) {
        const auto& node = nodes_[part];
        if (node.kind == Kind::text && node.tree.toStringRef() == ">")
          object.tree = std::string("big-endian");
      }
    }
  }

  Cursor& input_;
  const StorageLoader& load_storage_;
  Nodes nodes_;
  std::vector<NodeId> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, NodeId> memo_;
  bool stopped_ = false;
};

}  // namespace

Tree unpickle(Cursor& input, const StorageLoader& load_storage) {
  return Unpickler(input, load_storage).run();
}

}  // namespace lockstep::checkpoint
