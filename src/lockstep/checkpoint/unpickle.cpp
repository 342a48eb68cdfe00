#include "lockstep/checkpoint/unpickle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "lockstep/base/format.h"
#include "lockstep/checkpoint/pickle_node.h"

namespace lockstep::checkpoint {
namespace {

// The pickle opcodes that a checkpoint may hold, under the names of Python's pickletools.

enum class PickleOp : uint8_t {
  // the pickle itself
  proto = 0x80,
  frame = 0x95,
  stop = '.',
  // values
  none = 'N',
  newtrue = 0x88,
  newfalse = 0x89,
  binint = 'J',
  binint1 = 'K',
  binint2 = 'M',
  long1 = 0x8a,
  long4 = 0x8b,
  binfloat = 'G',
  // text and bytes
  binunicode = 'X',
  binbytes = 'B',
  binstring = 'T',
  short_binstring = 'U',
  short_binbytes = 'C',
  short_binunicode = 0x8c,
  binunicode8 = 0x8d,
  binbytes8 = 0x8e,
  bytearray8 = 0x96,
  // the stack
  mark = '(',
  pop = '0',
  pop_mark = '1',
  dup = '2',
  // containers
  empty_tuple = ')',
  tuple1 = 0x85,
  tuple2 = 0x86,
  tuple3 = 0x87,
  tuple = 't',
  frozenset = 0x91,
  empty_list = ']',
  empty_set = 0x8f,
  append = 'a',
  appends = 'e',
  additems = 0x90,
  empty_dict = '}',
  setitem = 's',
  setitems = 'u',
  // what was there before
  binput = 'q',
  long_binput = 'r',
  memoize = 0x94,
  binget = 'h',
  long_binget = 'j',
  // names, and what Python would call
  global = 'c',
  stack_global = 0x93,
  binpersid = 'Q',
  reduce = 'R',
  newobj = 0x81,
  newobj_ex = 0x92,
  build = 'b',
};

// What a pickle's calls mean: each name on the list stands for a small function here. Nothing else is called.

class PickleCalls {
 public:
  PickleCalls(const Cursor& input, NodeArena& nodes, const StorageLoader& load_storage)
      : input_(input), nodes_(nodes), load_storage_(load_storage) {}

  /// What the function that a global names would return.
  NodeId call(NodeId function, const std::vector<NodeId>& arguments);

  /// What a persistent id stands for.
  NodeId storage(NodeId id);

 private:
  NodeId make_list(const std::vector<NodeId>& arguments);
  NodeId make_dictionary(const std::vector<NodeId>& arguments);
  NodeId make_subclass(const std::vector<NodeId>& arguments);
  NodeId make_tensor(const std::vector<NodeId>& arguments, bool has_dtype);
  NodeId make_bytes(const std::vector<NodeId>& arguments);
  NodeId make_number(const std::vector<NodeId>& arguments);
  NodeId first_of(const std::vector<NodeId>& arguments) const;
  void want(bool holds) const { nodes_.want(holds); }

  const Cursor& input_;
  NodeArena& nodes_;
  const StorageLoader& load_storage_;
};

using Kind = PickleNode::Kind;

template <class Number>
Number decode(const std::string& bytes) {
  Number value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

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

const std::map<std::string_view, GlobalKind> kGlobals = {
    {"torch._utils._rebuild_tensor", GlobalKind::rebuild_tensor},
    {"torch._utils._rebuild_tensor_v2", GlobalKind::rebuild_tensor},
    {"torch._utils._rebuild_tensor_v3", GlobalKind::rebuild_tensor_v3},
    {"torch._utils._rebuild_parameter", GlobalKind::rebuild_parameter},
    {"torch._utils._rebuild_parameter_with_state", GlobalKind::rebuild_parameter},
    {"torch._tensor._rebuild_from_type_v2", GlobalKind::rebuild_subclass},
    {"torch.nn.parameter.Parameter", GlobalKind::rebuild_parameter},
    {"torch.nn.parameter.Buffer", GlobalKind::rebuild_parameter},
    {"torch.Tensor", GlobalKind::value},
    {"torch.Size", GlobalKind::first_argument},
    {"torch.device", GlobalKind::first_argument},
    {"torch.serialization._get_layout", GlobalKind::first_argument},
    {"_codecs.encode", GlobalKind::bytes_of_text},
    {"collections.OrderedDict", GlobalKind::dict},
    {"collections.defaultdict", GlobalKind::dict},
    {"collections.Counter", GlobalKind::dict},
    {"builtins.dict", GlobalKind::dict},
    {"builtins.list", GlobalKind::list},
    {"builtins.tuple", GlobalKind::list},
    {"builtins.set", GlobalKind::list},
    {"builtins.frozenset", GlobalKind::list},
    {"builtins.bytes", GlobalKind::list},
    {"builtins.complex", GlobalKind::object},
    {"builtins.bytearray", GlobalKind::object},
    {"builtins.int", GlobalKind::value},
    {"builtins.float", GlobalKind::value},
    {"builtins.str", GlobalKind::value},
    {"argparse.Namespace", GlobalKind::object},
    {"types.SimpleNamespace", GlobalKind::object},
    {"pathlib.PosixPath", GlobalKind::object},
    {"pathlib.PurePosixPath", GlobalKind::object},
    {"datetime.datetime", GlobalKind::object},
    {"datetime.timedelta", GlobalKind::object},
    {"numpy.dtype", GlobalKind::numpy_dtype},
    {"numpy.core.multiarray.scalar", GlobalKind::numpy_scalar},
    {"numpy._core.multiarray.scalar", GlobalKind::numpy_scalar},
    {"numpy.ndarray", GlobalKind::object},
    {"numpy.core.multiarray._reconstruct", GlobalKind::object},
    {"numpy._core.multiarray._reconstruct", GlobalKind::object},
};

const std::map<std::string_view, at::ScalarType> kStorages = {
    {"DoubleStorage", at::kDouble},
    {"FloatStorage", at::kFloat},
    {"HalfStorage", at::kHalf},
    {"BFloat16Storage", at::kBFloat16},
    {"LongStorage", at::kLong},
    {"IntStorage", at::kInt},
    {"ShortStorage", at::kShort},
    {"CharStorage", at::kChar},
    {"ByteStorage", at::kByte},
    {"BoolStorage", at::kBool},
    {"ComplexFloatStorage", at::kComplexFloat},
    {"ComplexDoubleStorage", at::kComplexDouble},
    {"UntypedStorage", at::kByte},
    {"_UntypedStorage", at::kByte},
};

const std::map<std::string_view, at::ScalarType> kTorchDtypes = {
    {"torch.float64", at::kDouble},
    {"torch.float32", at::kFloat},
    {"torch.float16", at::kHalf},
    {"torch.bfloat16", at::kBFloat16},
    {"torch.int64", at::kLong},
    {"torch.int32", at::kInt},
    {"torch.int16", at::kShort},
    {"torch.int8", at::kChar},
    {"torch.uint8", at::kByte},
    {"torch.uint16", at::kUInt16},
    {"torch.uint32", at::kUInt32},
    {"torch.uint64", at::kUInt64},
    {"torch.bool", at::kBool},
    {"torch.complex64", at::kComplexFloat},
    {"torch.complex128", at::kComplexDouble},
    {"torch.float8_e4m3fn", at::kFloat8_e4m3fn},
    {"torch.float8_e5m2", at::kFloat8_e5m2},
};

constexpr std::array<std::string_view, 4> kStorageModules = {"torch.storage.", "torch.cuda.", "torch.", ""};

std::string_view storage_class(std::string_view name) {
  for (const auto module : kStorageModules) {
    if (name.starts_with(module)) return name.substr(module.size());
  }
  return name;
}

}  // namespace

std::optional<at::ScalarType> dtype_of_global(const std::string& name) {
  if (const auto found = kTorchDtypes.find(name); found != kTorchDtypes.end()) return found->second;
  const auto found = kStorages.find(storage_class(name));
  if (found == kStorages.end()) return std::nullopt;
  return found->second;
}

std::string dtype_name(at::ScalarType dtype) {
  for (const auto& [name, known] : kTorchDtypes) {
    if (known == dtype) return std::string(name.substr(std::string_view("torch.").size()));
  }
  return c10::toString(dtype);
}

GlobalKind global_kind(const std::string& name) {
  if (const auto found = kGlobals.find(name); found != kGlobals.end()) return found->second;
  if (kTorchDtypes.contains(name)) return GlobalKind::value;
  if (name.starts_with("torch.") && kStorages.contains(storage_class(name))) return GlobalKind::storage;
  // Schedulers and layers pickled whole; their attributes are what a state_dict would hold.
  for (const auto harmless : {"torch.optim.", "torch.nn.modules.", "numpy.dtypes."}) {
    if (name.starts_with(harmless)) return GlobalKind::object;
  }
  return GlobalKind::refused;
}

// A stack machine: a table of handlers says what each opcode does to it.

namespace {

using Kind = PickleNode::Kind;

struct Machine {
  Machine(Cursor& from, const StorageLoader& load_storage)
      : input(from), nodes(from), calls(from, nodes, load_storage) {}

  Tree run();

  void push(NodeId id) { stack.push_back(id); }
  NodeId& top();
  NodeId pop();
  size_t floor() const { return marks.empty() ? 0 : marks.back(); }
  std::vector<NodeId> pop_mark();
  void push_tuple(size_t count);
  void push_long(std::span<const uint8_t> bytes);

  void remember(uint64_t index);
  void recall(uint64_t index);

  void push_global(const std::string& name);
  void call();
  void build();

  Cursor& input;
  NodeArena nodes;
  PickleCalls calls;
  std::vector<NodeId> stack;
  std::vector<size_t> marks;
  std::unordered_map<uint64_t, NodeId> memo;
  bool stopped = false;
};

NodeId& Machine::top() {
  nodes.want(stack.size() > floor());
  return stack.back();
}

NodeId Machine::pop() {
  const auto id = top();
  stack.pop_back();
  return id;
}

std::vector<NodeId> Machine::pop_mark() {
  nodes.want(!marks.empty());
  const auto start = stack.begin() + static_cast<std::ptrdiff_t>(marks.back());
  std::vector<NodeId> values(start, stack.end());
  stack.erase(start, stack.end());
  marks.pop_back();
  return values;
}

void Machine::push_tuple(size_t count) {
  nodes.want(stack.size() >= floor() + count);
  const std::vector<NodeId> values(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  stack.resize(stack.size() - count);
  push(nodes.add_tuple(values));
}

/// Two's complement, little-endian. What doesn't fit 64 bits becomes text: nothing here computes with it.
void Machine::push_long(std::span<const uint8_t> bytes) {
  const auto negative = !bytes.empty() && (bytes.back() & 0x80);
  auto value = negative ? ~uint64_t{0} : uint64_t{0};
  const auto used = std::min<size_t>(bytes.size(), 8);
  for (size_t i = used; i-- > 0;) value = (value << 8) | bytes[i];
  auto fits = (static_cast<int64_t>(value) < 0) == negative;
  for (size_t i = used; i < bytes.size(); ++i) fits = fits && bytes[i] == (negative ? 0xff : 0);
  if (fits) return push(nodes.add_integer(static_cast<int64_t>(value)));
  std::string digits;
  for (size_t i = bytes.size(); i-- > 0;) digits += format("{:02x}", bytes[i]);
  push(nodes.add_text("0x" + digits));
}

void Machine::remember(uint64_t index) {
  constexpr uint64_t kMemoEntry = 64;
  if (memo.insert_or_assign(index, top()).second) nodes.hold(kMemoEntry);
}

void Machine::recall(uint64_t index) {
  const auto found = memo.find(index);
  nodes.want(found != memo.end());
  push(found->second);
}

void Machine::push_global(const std::string& name) {
  if (global_kind(name) == GlobalKind::refused) {
    input.fail(
        format("the checkpoint asks for {}, which is not on the list of safe names; nothing was executed",
               name),
        "in Python, save state_dict()s and plain values instead of whole objects");
  }
  push(nodes.add_text(name, Kind::global));
}

void Machine::call() {
  const auto arguments = pop(), function = pop();
  nodes.want(nodes[arguments].kind == Kind::tuple && nodes[function].kind == Kind::global);
  const auto values = nodes[arguments].children;
  push(calls.call(function, values));
}

/// What follows REDUCE: an object's attributes. Those of tensors and dictionaries are of no use here.
void Machine::build() {
  const auto state = pop();
  auto& object = nodes[top()];
  if (object.kind != Kind::object) return;
  if (nodes[state].kind == Kind::dict) {
    const auto values = nodes[state].children;
    nodes.set_items(top(), values);
  } else if (!object.text.empty() && nodes[state].kind == Kind::tuple) {
    for (const auto part : nodes[state].children) {
      if (nodes[part].text == ">") object.text.clear();  // a big-endian numpy dtype
    }
  }
}

// --- handlers of which several opcodes are made ---

template <bool kValue>
void push_boolean(Machine& m) {
  m.push(m.nodes.add(PickleNode{.kind = Kind::boolean, .integer = kValue}));
}

template <class Number>
void push_integer(Machine& m) {
  m.push(m.nodes.add_integer(m.input.number<Number>()));
}

template <class Length>
void push_long(Machine& m) {
  m.push_long(m.input.take(m.input.number<Length>()));
}

template <class Length>
void push_text(Machine& m) {
  m.push(m.nodes.add_text(m.input.text(m.input.number<Length>())));
}

template <Kind kKind>
void push_empty(Machine& m) {
  m.push(m.nodes.add(kKind));
}

template <size_t kCount>
void push_tuple(Machine& m) {
  m.push_tuple(kCount);
}

template <class Index>
void remember(Machine& m) {
  m.remember(m.input.number<Index>());
}

template <class Index>
void recall(Machine& m) {
  m.recall(m.input.number<Index>());
}

// --- handlers of their own ---

void check_protocol(Machine& m) {
  if (m.input.number<uint8_t>() > 5)
    m.input.fail("the pickle is of a protocol newer than 5",
                 "in Python, save it again with torch.save and its own pickle_protocol");
}

void skip_frame_length(Machine& m) {
  m.input.skip(8);
}

void stop(Machine& m) {
  m.stopped = true;
}

void push_real(Machine& m) {
  m.push(m.nodes.add_real(std::bit_cast<double>(__builtin_bswap64(m.input.number<uint64_t>()))));
}

void set_mark(Machine& m) {
  m.marks.push_back(m.stack.size());
}

void drop(Machine& m) {
  m.pop();
}

void drop_to_mark(Machine& m) {
  m.pop_mark();
}

void duplicate(Machine& m) {
  m.push(m.top());
}

void push_tuple_from_mark(Machine& m) {
  m.push(m.nodes.add_tuple(m.pop_mark()));
}

void append_one(Machine& m) {
  const auto value = m.pop();
  m.nodes.extend(m.top(), {value});
}

void append_from_mark(Machine& m) {
  const auto values = m.pop_mark();
  m.nodes.extend(m.top(), values);
}

void set_one_item(Machine& m) {
  const auto value = m.pop(), key = m.pop();
  m.nodes.set_items(m.top(), {key, value});
}

void set_items_from_mark(Machine& m) {
  const auto values = m.pop_mark();
  m.nodes.set_items(m.top(), values);
}

void remember_next(Machine& m) {
  m.remember(m.memo.size());
}

void push_written_global(Machine& m) {
  const auto module = m.input.line();
  m.push_global(std::string(module == "__builtin__" ? "builtins" : module) + "." +
                std::string(m.input.line()));
}

void push_stacked_global(Machine& m) {
  const auto name = m.pop(), module = m.pop();
  m.push_global(m.nodes.text(module) + "." + m.nodes.text(name));
}

void push_storage(Machine& m) {
  m.push(m.calls.storage(m.pop()));
}

void call(Machine& m) {
  m.call();
}

void call_without_keywords(Machine& m) {
  m.pop();  // keyword arguments
  m.call();
}

void build(Machine& m) {
  m.build();
}

using Handler = void (*)(Machine&);

struct Row {
  PickleOp op;
  Handler act;
};

constexpr Row kRows[] = {
    {PickleOp::proto, check_protocol},
    {PickleOp::frame, skip_frame_length},
    {PickleOp::stop, stop},
    {PickleOp::none, push_empty<Kind::none>},
    {PickleOp::newtrue, push_boolean<true>},
    {PickleOp::newfalse, push_boolean<false>},
    {PickleOp::binint, push_integer<int32_t>},
    {PickleOp::binint1, push_integer<uint8_t>},
    {PickleOp::binint2, push_integer<uint16_t>},
    {PickleOp::long1, push_long<uint8_t>},
    {PickleOp::long4, push_long<uint32_t>},
    {PickleOp::binfloat, push_real},
    {PickleOp::binunicode, push_text<uint32_t>},
    {PickleOp::binbytes, push_text<uint32_t>},
    {PickleOp::binstring, push_text<uint32_t>},
    {PickleOp::short_binstring, push_text<uint8_t>},
    {PickleOp::short_binbytes, push_text<uint8_t>},
    {PickleOp::short_binunicode, push_text<uint8_t>},
    {PickleOp::binunicode8, push_text<uint64_t>},
    {PickleOp::binbytes8, push_text<uint64_t>},
    {PickleOp::bytearray8, push_text<uint64_t>},
    {PickleOp::mark, set_mark},
    {PickleOp::pop, drop},
    {PickleOp::pop_mark, drop_to_mark},
    {PickleOp::dup, duplicate},
    {PickleOp::empty_tuple, push_empty<Kind::tuple>},
    {PickleOp::tuple1, push_tuple<1>},
    {PickleOp::tuple2, push_tuple<2>},
    {PickleOp::tuple3, push_tuple<3>},
    {PickleOp::tuple, push_tuple_from_mark},
    {PickleOp::frozenset, push_tuple_from_mark},
    {PickleOp::empty_list, push_empty<Kind::list>},
    {PickleOp::empty_set, push_empty<Kind::list>},
    {PickleOp::append, append_one},
    {PickleOp::appends, append_from_mark},
    {PickleOp::additems, append_from_mark},
    {PickleOp::empty_dict, push_empty<Kind::dict>},
    {PickleOp::setitem, set_one_item},
    {PickleOp::setitems, set_items_from_mark},
    {PickleOp::binput, remember<uint8_t>},
    {PickleOp::long_binput, remember<uint32_t>},
    {PickleOp::memoize, remember_next},
    {PickleOp::binget, recall<uint8_t>},
    {PickleOp::long_binget, recall<uint32_t>},
    {PickleOp::global, push_written_global},
    {PickleOp::stack_global, push_stacked_global},
    {PickleOp::binpersid, push_storage},
    {PickleOp::reduce, call},
    {PickleOp::newobj, call},
    {PickleOp::newobj_ex, call_without_keywords},
    {PickleOp::build, build},
};

constexpr auto kHandlers = [] {
  std::array<Handler, 256> handlers{};
  for (const auto& [op, act] : kRows) handlers[static_cast<uint8_t>(op)] = act;
  return handlers;
}();

// Of opcodes: gcc's sanitizer compares no function's address in a constant.
constexpr bool has_one_row_an_opcode() {
  std::array<bool, 256> seen{};
  for (const auto& row : kRows) {
    if (std::exchange(seen[static_cast<uint8_t>(row.op)], true)) return false;
  }
  return true;
}
static_assert(has_one_row_an_opcode(), "an opcode has two rows");

Tree Machine::run() {
  while (!stopped) {
    const auto op = input.number<uint8_t>();
    const auto act = kHandlers[op];
    if (!act)
      input.fail(format("the pickle holds the opcode {:#04x}, which no checkpoint needs", op),
                 "in Python, load it and save it again with torch.save");
    act(*this);
  }
  return nodes.to_tree(pop());
}

}  // namespace

Tree unpickle(Cursor& input, const StorageLoader& load_storage) {
  return Machine(input, load_storage).run();
}

}  // namespace lockstep::checkpoint
