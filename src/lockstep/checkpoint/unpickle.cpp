// A stack machine: a table of handlers says what each opcode does to it.

#include "lockstep/checkpoint/unpickle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <unordered_map>
#include <utility>

#include "lockstep/base/format.h"
#include "lockstep/checkpoint/pickle_calls.h"
#include "lockstep/checkpoint/pickle_globals.h"
#include "lockstep/checkpoint/pickle_node.h"
#include "lockstep/checkpoint/pickle_opcodes.h"

namespace lockstep::checkpoint {

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
