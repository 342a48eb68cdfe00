#include "lockstep/checkpoint/pickle_globals.h"

#include <array>
#include <map>
#include <string_view>

namespace lockstep::checkpoint {

namespace {

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

}  // namespace lockstep::checkpoint
