// The Python functions on sizes and numbers that an exported graph may call.
#include "lockstep/exported/graph.h"

#include <ATen/ScalarOps.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
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
template <class Operation>
int64_t wrapping(int64_t a, int64_t b) {
  return static_cast<int64_t>(Operation()(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
}

void check_divisor(double divisor) {
  if (divisor == 0) throw Error("the exported graph divides by zero");
}

int64_t floor_divide(int64_t a, int64_t b) {
  check_divisor(static_cast<double>(b));
  if (b == -1) return wrapping<std::minus<>>(0, a);
  const auto quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t remainder(int64_t a, int64_t b) {
  return wrapping<std::minus<>>(a, wrapping<std::multiplies<>>(floor_divide(a, b), b));
}

// As Python's float: of the divisor's sign, and exact.
double real_remainder(double a, double b) {
  check_divisor(b);
  const auto rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double real_floor_divide(double a, double b) {
  const auto quotient = (a - real_remainder(a, b)) / b;
  const auto floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

int64_t power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1, base = wrapping<std::multiplies<>>(base, base))
    if (exponent & 1) result = wrapping<std::multiplies<>>(result, base);
  return result;
}

// What no int64 holds becomes the nearest that one does.
int64_t to_integer(double value) {
  constexpr double kEdge = 9223372036854775808.0;
  if (std::isnan(value)) throw Error("the exported graph converts NaN to an integer");
  if (value >= kEdge) return std::numeric_limits<int64_t>::max();
  if (value < -kEdge) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

// Of two whole numbers, or of two real ones.
template <auto whole, auto real>
IValue compute(Numbers v) {
  if (are_whole(v)) return int64_t{whole(integer_of(v[0]), integer_of(v[1]))};
  return double{real(real_of(v[0]), real_of(v[1]))};
}

template <class Comparison>
IValue compare(Numbers v) {
  if (are_whole(v)) return Comparison()(integer_of(v[0]), integer_of(v[1]));
  return Comparison()(real_of(v[0]), real_of(v[1]));
}

template <class Logical, class Bitwise>
IValue combine(Numbers v) {
  if (v[0].isBool() && v[1].isBool()) return Logical()(v[0].toBool(), v[1].toBool());
  return Bitwise()(integer_of(v[0]), integer_of(v[1]));
}

IValue divide(Numbers v) {
  check_divisor(real_of(v[1]));
  return real_of(v[0]) / real_of(v[1]);
}
IValue raise(Numbers v) {
  if (are_whole(v) && integer_of(v[1]) >= 0) return power(integer_of(v[0]), integer_of(v[1]));
  return std::pow(real_of(v[0]), real_of(v[1]));
}
IValue negate(Numbers v) {
  return is_whole(v[0]) ? IValue(wrapping<std::minus<>>(0, integer_of(v[0]))) : IValue(-real_of(v[0]));
}
// Beyond the width of an integer nothing of it is left.
IValue shift_left(Numbers v) {
  const auto by = integer_of(v[1]);
  return by < 0 || by > 63 ? int64_t{0} : static_cast<int64_t>(static_cast<uint64_t>(integer_of(v[0])) << by);
}
IValue shift_right(Numbers v) {
  return integer_of(v[0]) >> std::clamp<int64_t>(integer_of(v[1]), 0, 63);
}
template <class T>
T larger(T a, T b) {
  return std::max(a, b);
}
template <class T>
T smaller(T a, T b) {
  return std::min(a, b);
}

const std::unordered_map<std::string, NamedArithmetic>& table() {
  static const std::unordered_map<std::string, NamedArithmetic> rows = {
      {"_operator.add", {compute<wrapping<std::plus<>>, std::plus<double>{}>, 2}},
      {"_operator.sub", {compute<wrapping<std::minus<>>, std::minus<double>{}>, 2}},
      {"_operator.mul", {compute<wrapping<std::multiplies<>>, std::multiplies<double>{}>, 2}},
      {"_operator.floordiv", {compute<floor_divide, real_floor_divide>, 2}},
      {"_operator.mod", {compute<remainder, real_remainder>, 2}},
      {"_operator.truediv", {divide, 2}},
      {"_operator.pow", {raise, 2}},
      {"_operator.neg", {negate, 1}},
      {"_operator.pos", {[](Numbers v) { return v[0]; }, 1}},
      {"_operator.eq", {compare<std::equal_to<>>, 2}},
      {"_operator.ne", {compare<std::not_equal_to<>>, 2}},
      {"_operator.lt", {compare<std::less<>>, 2}},
      {"_operator.le", {compare<std::less_equal<>>, 2}},
      {"_operator.gt", {compare<std::greater<>>, 2}},
      {"_operator.ge", {compare<std::greater_equal<>>, 2}},
      {"_operator.and_", {combine<std::logical_and<>, std::bit_and<>>, 2}},
      {"_operator.or_", {combine<std::logical_or<>, std::bit_or<>>, 2}},
      {"_operator.lshift", {shift_left, 2}},
      {"_operator.rshift", {shift_right, 2}},
      {"torch.sym_not", {[](Numbers v) { return IValue(integer_of(v[0]) == 0); }, 1}},
      {"torch.sym_int", {[](Numbers v) { return IValue(to_integer(real_of(v[0]))); }, 1}},
      {"math.trunc", {[](Numbers v) { return IValue(to_integer(real_of(v[0]))); }, 1}},
      {"math.ceil", {[](Numbers v) { return IValue(to_integer(std::ceil(real_of(v[0])))); }, 1}},
      {"math.floor", {[](Numbers v) { return IValue(to_integer(std::floor(real_of(v[0])))); }, 1}},
      {"torch.sym_float", {[](Numbers v) { return IValue(real_of(v[0])); }, 1}},
      {"torch.sym_sqrt", {[](Numbers v) { return IValue(std::sqrt(real_of(v[0]))); }, 1}},
      {"torch._sym_sqrt", {[](Numbers v) { return IValue(std::sqrt(real_of(v[0]))); }, 1}},
      {"torch.sym_max", {compute<larger<int64_t>, larger<double>>, 2}},
      {"torch.sym_min", {compute<smaller<int64_t>, smaller<double>>, 2}},
      {"torch.sym_ite", {[](Numbers v) { return integer_of(v[0]) != 0 ? v[1] : v[2]; }, 3}},
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
  throw Error("the exported graph uses a " + value.tagKind() + " as an integer");
}

const NamedArithmetic* find_arithmetic(const std::string& name) {
  const auto found = table().find(name);
  return found == table().end() ? nullptr : &found->second;
}

}  // namespace lockstep::exported
