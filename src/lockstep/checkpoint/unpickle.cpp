#include "lockstep/checkpoint/unpickle.h"

#include <array>
#include <bit>
#include <unordered_map>

#include "lockstep/base/format.h"
#include "lockstep/checkpoint/pickle_globals.h"
#include "lockstep/checkpoint/pickle_node.h"
#include "lockstep/checkpoint/rebuild.h"

namespace lockstep::checkpoint {

namespace {

using Kind = Node::Kind;

class Unpickler {
 public:
  Unpickler(Cursor& input, const StorageLoader& load_storage)
      : input_(input), load_storage_(load_storage), nodes_(input) {}

  Tree run() {
    while (step(input_.number<uint8_t>())) {
    }
    return nodes_.to_tree(pop());
  }

 private:
  // --- the stack ---
  void push(NodeId id) { stack_.push_back(id); }
  NodeId& top() {
    if (stack_.size() <= floor()) damaged();
    return stack_.back();
  }
  NodeId pop() {
    const auto id = top();
    stack_.pop_back();
    return id;
  }
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  std::vector<NodeId> pop_mark() {
    if (marks_.empty()) damaged();
    const auto start = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<NodeId> values(start, stack_.end());
    stack_.erase(start, stack_.end());
    marks_.pop_back();
    return values;
  }
  [[noreturn]] void damaged() const { input_.fail("the file is damaged: its pickle makes no sense"); }
  void want(bool holds) const {
    if (!holds) damaged();
  }

  // --- opcodes: true to go on ---
  bool step(uint8_t op);
  bool push_value(uint8_t op);
  bool push_text(uint8_t op);
  bool change_container(uint8_t op);
  bool use_memo(uint8_t op);
  bool use_global(uint8_t op);

  void push_long(std::span<const uint8_t> bytes);
  void push_tuple(size_t count);
  void extend(NodeId list, const std::vector<NodeId>& values);
  void set_items(NodeId dict, const std::vector<NodeId>& values);
  void remember(uint64_t index) {
    constexpr uint64_t kMemoEntry = 64;
    if (memo_.insert_or_assign(index, top()).second) nodes_.hold(kMemoEntry);
  }
  void recall(uint64_t index);
  void push_global(const std::string& name);
  void build();

  // --- what stands for a call ---
  NodeId call(NodeId function, const std::vector<NodeId>& arguments);
  NodeId make_dictionary(const std::vector<NodeId>& arguments);
  NodeId make_tensor(const std::vector<NodeId>& arguments, bool has_dtype);
  NodeId make_bytes(const std::vector<NodeId>& arguments);
  NodeId make_number(const std::vector<NodeId>& arguments);
  NodeId persistent(NodeId id);
  std::vector<int64_t> integers(NodeId id) const;
  int64_t integer(NodeId id) const {
    want(nodes_[id].kind == Kind::integer);
    return nodes_[id].integer;
  }
  const std::string& text(NodeId id) const {
    want(nodes_[id].kind == Kind::text);
    return nodes_[id].text;
  }

  Cursor& input_;
  const StorageLoader& load_storage_;
  NodeArena nodes_;
  std::vector<NodeId> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, NodeId> memo_;
};

bool Unpickler::step(uint8_t op) {
  constexpr uint8_t kProtocol = 0x80, kFrame = 0x95, kStop = '.';
  if (op == kStop) return false;
  if (op == kProtocol) {
    if (input_.number<uint8_t>() > 5)
      input_.fail("the pickle is of a protocol newer than 5",
                  "in Python, save it again with torch.save and its own pickle_protocol");
    return true;
  }
  if (op == kFrame) {
    input_.skip(8);
    return true;
  }
  if (push_value(op) || push_text(op) || change_container(op) || use_memo(op) || use_global(op)) return true;
  input_.fail(format("the pickle holds the opcode {:#04x}, which no checkpoint needs", op),
              "in Python, load it and save it again with torch.save");
}

bool Unpickler::push_value(uint8_t op) {
  switch (op) {
    case 'N':
      push(nodes_.add(Kind::none));
      return true;
    case 0x88:
      push(nodes_.add(Node{.kind = Kind::boolean, .integer = 1}));
      return true;
    case 0x89:
      push(nodes_.add(Node{.kind = Kind::boolean, .integer = 0}));
      return true;
    case 'J':
      push(nodes_.add_integer(input_.number<int32_t>()));
      return true;
    case 'K':
      push(nodes_.add_integer(input_.number<uint8_t>()));
      return true;
    case 'M':
      push(nodes_.add_integer(input_.number<uint16_t>()));
      return true;
    case 0x8a:
      push_long(input_.take(input_.number<uint8_t>()));
      return true;
    case 0x8b:
      push_long(input_.take(input_.number<uint32_t>()));
      return true;
    case 'G':
      push(nodes_.add_real(std::bit_cast<double>(__builtin_bswap64(input_.number<uint64_t>()))));
      return true;
    default:
      return false;
  }
}

/// Two's complement, little-endian. What doesn't fit 64 bits becomes text: nothing here computes with it.
void Unpickler::push_long(std::span<const uint8_t> bytes) {
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

bool Unpickler::push_text(uint8_t op) {
  switch (op) {
    case 'X':
    case 'B':
    case 'T':
      push(nodes_.add_text(input_.text(input_.number<uint32_t>())));
      return true;
    case 'U':
    case 'C':
    case 0x8c:
      push(nodes_.add_text(input_.text(input_.number<uint8_t>())));
      return true;
    case 0x8d:
    case 0x8e:
    case 0x96:
      push(nodes_.add_text(input_.text(input_.number<uint64_t>())));
      return true;
    default:
      return false;
  }
}

void Unpickler::push_tuple(size_t count) {
  want(stack_.size() >= floor() + count);
  const std::vector<NodeId> values(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
  stack_.resize(stack_.size() - count);
  push(nodes_.add_tuple(values));
}

bool Unpickler::change_container(uint8_t op) {
  switch (op) {
    case '(':
      marks_.push_back(stack_.size());
      return true;
    case '0':
      pop();
      return true;
    case '1':
      pop_mark();
      return true;
    case '2':
      push(top());
      return true;
    case ')':
      push(nodes_.add(Kind::tuple));
      return true;
    case ']':
    case 0x8f:
      push(nodes_.add(Kind::list));
      return true;
    case '}':
      push(nodes_.add(Kind::dict));
      return true;
    case 0x85:
      push_tuple(1);
      return true;
    case 0x86:
      push_tuple(2);
      return true;
    case 0x87:
      push_tuple(3);
      return true;
    case 't':
    case 0x91:
      push(nodes_.add_tuple(pop_mark()));
      return true;
    case 'a': {
      const auto value = pop();
      extend(top(), {value});
      return true;
    }
    case 'e':
    case 0x90: {
      const auto values = pop_mark();
      extend(top(), values);
      return true;
    }
    case 's': {
      const auto value = pop(), key = pop();
      set_items(top(), {key, value});
      return true;
    }
    case 'u': {
      const auto values = pop_mark();
      set_items(top(), values);
      return true;
    }
    default:
      return false;
  }
}

void Unpickler::extend(NodeId list, const std::vector<NodeId>& values) {
  want(nodes_[list].kind == Kind::list);
  for (const auto value : values) nodes_.place(list, value);
}

void Unpickler::set_items(NodeId dict, const std::vector<NodeId>& values) {
  want((nodes_[dict].kind == Kind::dict || nodes_[dict].kind == Kind::object) && values.size() % 2 == 0);
  for (const auto value : values) nodes_.place(dict, value);
}

bool Unpickler::use_memo(uint8_t op) {
  switch (op) {
    case 'q':
      remember(input_.number<uint8_t>());
      return true;
    case 'r':
      remember(input_.number<uint32_t>());
      return true;
    case 0x94:
      remember(memo_.size());
      return true;
    case 'h':
      recall(input_.number<uint8_t>());
      return true;
    case 'j':
      recall(input_.number<uint32_t>());
      return true;
    default:
      return false;
  }
}

void Unpickler::recall(uint64_t index) {
  const auto found = memo_.find(index);
  want(found != memo_.end());
  push(found->second);
}

bool Unpickler::use_global(uint8_t op) {
  switch (op) {
    case 'c': {
      const auto module = input_.line();
      push_global(std::string(module == "__builtin__" ? "builtins" : module) + "." +
                  std::string(input_.line()));
      return true;
    }
    case 0x93: {
      const auto name = pop(), module = pop();
      push_global(text(module) + "." + text(name));
      return true;
    }
    case 'Q':
      push(persistent(pop()));
      return true;
    case 0x92:
      pop();
      [[fallthrough]];  // keyword arguments
    case 'R':
    case 0x81: {
      const auto arguments = pop(), function = pop();
      want(nodes_[arguments].kind == Kind::tuple && nodes_[function].kind == Kind::global);
      const auto values = nodes_[arguments].children;
      push(call(function, values));
      return true;
    }
    case 'b':
      build();
      return true;
    default:
      return false;
  }
}

void Unpickler::push_global(const std::string& name) {
  if (global_kind(name) == GlobalKind::refused) {
    input_.fail(
        format("the checkpoint asks for {}, which is not on the list of safe names; nothing was executed",
               name),
        "in Python, save state_dict()s and plain values instead of whole objects");
  }
  push(nodes_.add_text(name, Kind::global));
}

/// What follows REDUCE: an object's attributes. Those of tensors and dictionaries are of no use here.
void Unpickler::build() {
  const auto state = pop();
  auto& object = nodes_[top()];
  if (object.kind != Kind::object) return;
  if (nodes_[state].kind == Kind::dict) {
    const auto values = nodes_[state].children;
    set_items(top(), values);
  } else if (!object.text.empty() && nodes_[state].kind == Kind::tuple) {
    for (const auto part : nodes_[state].children) {
      if (nodes_[part].text == ">") object.text.clear();  // a big-endian numpy dtype
    }
  }
}

NodeId Unpickler::call(NodeId function, const std::vector<NodeId>& arguments) {
  const auto& name = nodes_[function].text;
  switch (global_kind(name)) {
    case GlobalKind::rebuild_tensor:
      return make_tensor(arguments, false);
    case GlobalKind::rebuild_tensor_v3:
      return make_tensor(arguments, true);
    case GlobalKind::dict:
      return make_dictionary(arguments);
    case GlobalKind::bytes_of_text:
      return make_bytes(arguments);
    case GlobalKind::numpy_scalar:
      return make_number(arguments);
    case GlobalKind::rebuild_parameter:
    case GlobalKind::first_argument:
      want(!arguments.empty());
      return arguments[0];
    case GlobalKind::numpy_dtype:
      want(!arguments.empty());
      return nodes_.add_text(text(arguments[0]), Kind::object);
    case GlobalKind::list: {
      const auto list = nodes_.add(Kind::list);
      const auto values = arguments.empty() ? std::vector<NodeId>() : nodes_[arguments[0]].children;
      extend(list, values);
      return list;
    }
    case GlobalKind::rebuild_subclass: {
      want(arguments.size() >= 3 && nodes_[arguments[0]].kind == Kind::global);
      want(global_kind(nodes_[arguments[0]].text) != GlobalKind::rebuild_subclass);
      const auto inner = nodes_[arguments[2]].children;
      return call(arguments[0], inner);
    }
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

NodeId Unpickler::make_dictionary(const std::vector<NodeId>& arguments) {
  const auto dict = nodes_.add(Kind::dict);
  if (arguments.empty() || nodes_[arguments[0]].kind == Kind::global) return dict;  // a defaultdict's factory
  const auto source = nodes_[arguments[0]].children;
  if (nodes_[arguments[0]].kind == Kind::dict) {
    set_items(dict, source);
    return dict;
  }
  for (const auto pair : source) {
    const auto values = nodes_[pair].children;
    want(values.size() == 2);
    set_items(dict, values);
  }
  return dict;
}

std::vector<int64_t> Unpickler::integers(NodeId id) const {
  want(nodes_[id].kind == Kind::tuple || nodes_[id].kind == Kind::list);
  std::vector<int64_t> values;
  for (const auto child : nodes_[id].children) values.push_back(integer(child));
  return values;
}

NodeId Unpickler::make_tensor(const std::vector<NodeId>& arguments, bool has_dtype) {
  want(arguments.size() >= (has_dtype ? 7u : 4u) && nodes_[arguments[0]].kind == Kind::storage);
  const auto& storage = nodes_[arguments[0]];
  TensorClaim claim{.dtype = static_cast<at::ScalarType>(storage.integer),
                    .offset = integer(arguments[1]),
                    .sizes = integers(arguments[2]),
                    .strides = integers(arguments[3])};
  if (has_dtype) {
    const auto dtype = dtype_of_global(nodes_[arguments[6]].text);
    want(dtype.has_value());
    claim.dtype = *dtype;
  }
  const auto bytes = storage.tensor;
  return nodes_.add_tensor(rebuild_tensor(bytes, claim, input_));
}

/// Latin-1 from UTF-8: each character is a byte.
NodeId Unpickler::make_bytes(const std::vector<NodeId>& arguments) {
  want(!arguments.empty());
  const auto& utf8 = text(arguments[0]);
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

template <class Number>
double decode(const std::string& bytes) {
  Number value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return static_cast<double>(value);
}

/// numpy.float64(0.98) and the like, which training scripts often leave in checkpoints.
NodeId Unpickler::make_number(const std::vector<NodeId>& arguments) {
  want(arguments.size() == 2 && nodes_[arguments[0]].kind == Kind::object);
  const auto& code = nodes_[arguments[0]].text;
  const auto& bytes = nodes_[arguments[1]].text;
  if (code == "f8" && bytes.size() == 8) return nodes_.add_real(decode<double>(bytes));
  if (code == "f4" && bytes.size() == 4) return nodes_.add_real(decode<float>(bytes));
  if (code == "i4" && bytes.size() == 4)
    return nodes_.add_integer(static_cast<int64_t>(decode<int32_t>(bytes)));
  if (code == "i8" && bytes.size() == 8) {
    int64_t value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return nodes_.add_integer(value);
  }
  return nodes_.add(Kind::none);
}

NodeId Unpickler::persistent(NodeId id) {
  const auto parts = nodes_[id].children;  // ("storage", class, key, location, numel[, view])
  want(nodes_[id].kind == Kind::tuple && parts.size() >= 5 && text(parts[0]) == "storage");
  want(nodes_[parts[1]].kind == Kind::global);
  if (parts.size() > 5 && nodes_[parts[5]].kind != Kind::none) {
    input_.fail("the file shares a storage in the manner of PyTorch before 0.4",
                "load and save it again in Python");
  }
  const auto dtype = dtype_of_global(nodes_[parts[1]].text);
  if (!dtype)
    input_.fail(format("the file holds a {}, which is not supported", nodes_[parts[1]].text),
                "in Python, dequantize() it, or convert it to a plain dtype, and save it again");
  auto bytes = load_storage_({text(parts[2]), *dtype, integer(parts[4])});
  return nodes_.add(
      Node{.kind = Kind::storage, .integer = static_cast<int64_t>(*dtype), .tensor = std::move(bytes)});
}

}  // namespace

Tree unpickle(Cursor& input, const StorageLoader& load_storage) {
  return Unpickler(input, load_storage).run();
}

}  // namespace lockstep::checkpoint
