#pragma once
// The pickle opcodes that a checkpoint may hold, under the names of Python's pickletools.

#include <cstdint>

namespace lockstep::checkpoint {

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

}  // namespace lockstep::checkpoint
