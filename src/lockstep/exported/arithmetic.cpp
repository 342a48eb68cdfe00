#include "lockstep/exported/graph.h"

#include <ATen/ScalarOps.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "lockstep/base/error.h"

namespace lockstep::exported {
namespace {

using c10::IValue;
using Numbers = const std::vector<IValue>&;

bool is_whole(const IValue& value) {
  return value.isInt() || value.isBool();
}

bool are_whole(Numbers values) {
  for (const auto& value : values)
    if (!is_whole(value)) return false;
  return true;
}

double real_of(const IValue& value) {
  return value.isDouble() ? value.toDouble() : static_cast<double>(integer_of(value));
}

// Sizes that overflow are a mistake in the file; unsigned, they wrap without being undefined.
int64_t wrapped(uint64_t value) {
  return static_cast<int64_t>(value);
}
uint64_t bits(int64_t value) {
  return static_cast<uint64_t>(value);
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) throw Error("the exported graph divides by zero");
  if (b == -1) return wrapped(0 - bits(a));
  const auto quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

// As Python's float: of the divisor's sign, and exact.
double real_remainder(double a, double b) {
  if (b == 0) throw Error("the exported graph divides by zero");
  const auto rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

int64_t power(int64_t base, int64_t exponent) {
  uint64_t result = 1;
  for (uint64_t square = bits(base); exponent > 0; exponent >>= 1, square *= square)
    if (exponent & 1) result *= square;
  return wrapped(result);
}

template <class Whole, class Real>
IValue compute(Numbers v, Whole whole, Real real) {
  if (are_whole(v)) return IValue(int64_t(whole(integer_of(v[0]), integer_of(v[1]))));
  return IValue(double(real(real_of(v[0]), real_of(v[1]))));
}

template <class Compare>
IValue compared(Numbers v, Compare compare) {
  if (are_whole(v)) return IValue(bool(compare(integer_of(v[0]), integer_of(v[1]))));
  return IValue(bool(compare(real_of(v[0]), real_of(v[1]))));
}

IValue add(Numbers v) {
  return compute(
      v, [](int64_t a, int64_t b) { return wrapped(bits(a) + bits(b)); },
      [](double a, double b) { return a + b; });
}
IValue subtract(Numbers v) {
  return compute(
      v, [](int64_t a, int64_t b) { return wrapped(bits(a) - bits(b)); },
      [](double a, double b) { return a - b; });
}
IValue multiply(Numbers v) {
  return compute(
      v, [](int64_t a, int64_t b) { return wrapped(bits(a) * bits(b)); },
      [](double a, double b) { return a * b; });
}
IValue divide_down(Numbers v) {
  return compute(v, floor_divide, [](double a, double b) {
    const auto quotient = (a - real_remainder(a, b)) / b;
    const auto floor = std::floor(quotient);
    return quotient - floor > 0.5 ? floor + 1 : floor;
  });
}
IValue remainder(Numbers v) {
  return compute(
      v, [](int64_t a, int64_t b) { return wrapped(bits(a) - bits(floor_divide(a, b)) * bits(b)); },
      real_remainder);
}
IValue divide(Numbers v) {
  if (real_of(v[1]) == 0) throw Error("the exported graph divides by zero");
  return real_of(v[0]) / real_of(v[1]);
}
IValue raise(Numbers v) {
  if (are_whole(v) && integer_of(v[1]) >= 0) return power(integer_of(v[0]), integer_of(v[1]));
  return std::pow(real_of(v[0]), real_of(v[1]));
}
IValue negate(Numbers v) {
  return is_whole(v[0]) ? IValue(wrapped(0 - bits(integer_of(v[0])))) : IValue(-real_of(v[0]));
}
IValue same(Numbers v) {
  return v[0];
}
IValue most(Numbers v) {
  return compute(
      v, [](int64_t a, int64_t b) { return std::max(a, b); },
      [](double a, double b) { return std::max(a, b); });
}
IValue least(Numbers v) {
  return compute(
      v, [](int64_t a, int64_t b) { return std::min(a, b); },
      [](double a, double b) { return std::min(a, b); });
}
IValue both(Numbers v) {
  return v[0].isBool() && v[1].isBool() ? IValue(v[0].toBool() && v[1].toBool())
                                        : IValue(integer_of(v[0]) & integer_of(v[1]));
}
IValue either(Numbers v) {
  return v[0].isBool() && v[1].isBool() ? IValue(v[0].toBool() || v[1].toBool())
                                        : IValue(integer_of(v[0]) | integer_of(v[1]));
}
// Beyond the width of an integer nothing of it is left.
IValue shift_left(Numbers v) {
  const auto by = integer_of(v[1]);
  return by < 0 || by > 63 ? IValue(int64_t{0}) : IValue(wrapped(bits(integer_of(v[0])) << by));
}
IValue shift_right(Numbers v) {
  return integer_of(v[0]) >> std::clamp<int64_t>(integer_of(v[1]), 0, 63);
}
IValue opposite(Numbers v) {
  return integer_of(v[0]) == 0;
}
// What no int64 holds becomes the nearest that one does.
IValue to_integer(double value) {
  constexpr double kEdge = 9223372036854775808.0;
  if (std::isnan(value)) throw Error("the exported graph makes an integer of NaN");
  if (value >= kEdge) return std::numeric_limits<int64_t>::max();
  if (value < -kEdge) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}
IValue truncate(Numbers v) {
  return to_integer(std::trunc(real_of(v[0])));
}
IValue round_up(Numbers v) {
  return to_integer(std::ceil(real_of(v[0])));
}
IValue round_down(Numbers v) {
  return to_integer(std::floor(real_of(v[0])));
}
IValue to_real(Numbers v) {
  return real_of(v[0]);
}
IValue root(Numbers v) {
  return std::sqrt(real_of(v[0]));
}
IValue choose(Numbers v) {
  return integer_of(v[0]) != 0 ? v[1] : v[2];
}

const std::unordered_map<std::string, NamedArithmetic>& table() {
  static const std::unordered_map<std::string, NamedArithmetic> rows = {
      {"_operator.add", {add, 2}},
      {"_operator.sub", {subtract, 2}},
      {"_operator.mul", {multiply, 2}},
      {"_operator.floordiv", {divide_down, 2}},
      {"_operator.mod", {remainder, 2}},
      {"_operator.truediv", {divide, 2}},
      {"_operator.pow", {raise, 2}},
      {"_operator.neg", {negate, 1}},
      {"_operator.pos", {same, 1}},
      {"_operator.eq", {[](Numbers v) { return compared(v, [](auto a, auto b) { return a == b; }); }, 2}},
      {"_operator.ne", {[](Numbers v) { return compared(v, [](auto a, auto b) { return a != b; }); }, 2}},
      {"_operator.lt", {[](Numbers v) { return compared(v, [](auto a, auto b) { return a < b; }); }, 2}},
      {"_operator.le", {[](Numbers v) { return compared(v, [](auto a, auto b) { return a <= b; }); }, 2}},
      {"_operator.gt", {[](Numbers v) { return compared(v, [](auto a, auto b) { return a > b; }); }, 2}},
      {"_operator.ge", {[](Numbers v) { return compared(v, [](auto a, auto b) { return a >= b; }); }, 2}},
      {"_operator.and_", {both, 2}},
      {"_operator.or_", {either, 2}},
      {"_operator.lshift", {shift_left, 2}},
      {"_operator.rshift", {shift_right, 2}},
      {"torch.sym_not", {opposite, 1}},
      {"torch.sym_int", {truncate, 1}},
      {"math.trunc", {truncate, 1}},
      {"math.ceil", {round_up, 1}},
      {"math.floor", {round_down, 1}},
      {"torch.sym_float", {to_real, 1}},
      {"torch.sym_sqrt", {root, 1}},
      {"torch._sym_sqrt", {root, 1}},
      {"torch.sym_max", {most, 2}},
      {"torch.sym_min", {least, 2}},
      {"torch.sym_ite", {choose, 3}},
  };
  return rows;
}

}  // namespace

at::Tensor wrapped_number(const IValue& value) {
  auto tensor = c10::scalar_to_tensor(value.toScalar());
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

int64_t integer_of(const IValue& value) {
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return value.toInt();
  throw Error("the exported graph takes a " + value.tagKind() + " for an integer");
}

const NamedArithmetic* find_arithmetic(const std::string& name) {
  const auto found = table().find(name);
  return found == table().end() ? nullptr : &found->second;
}

}  // namespace lockstep::exported
