#include "lockstep/base/error.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <new>
#include <utility>

#include "lockstep/base/memory.h"
#include "lockstep/base/text.h"

namespace lockstep {

bool base::is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) || dynamic_cast<const std::length_error*>(&error))
    return true;
  const std::string_view text = error.what();  // c10's allocators throw errors of their own
  return text.find("can't allocate memory") != text.npos || text.find("out of memory") != text.npos;
}

namespace {

bool is_about_the_path(const std::error_code& code) {
  constexpr std::errc kPathErrors[] = {
      std::errc::filename_too_long, std::errc::no_such_file_or_directory,     std::errc::not_a_directory,
      std::errc::is_a_directory,    std::errc::too_many_symbolic_link_levels, std::errc::permission_denied};
  return std::any_of(std::begin(kPathErrors), std::end(kPathErrors),
                     [&](const std::errc kind) { return code == kind; });
}

constexpr const char* kNames[] = {"failed", "bad-input", "no-memory",     "not-joined",   "launcher",
                                  "gpu",    "versions",  "shared-memory", "open-files",   "network",
                                  "nccl",   "rank-lost", "rank-late",     "calls-differ", "no-gradient"};
static_assert(std::size(kNames) == static_cast<size_t>(Code::no_gradient) + 1);

}  // namespace

const char* name_of(Code code) {
  return kNames[static_cast<size_t>(code)];
}

Code code_of(const std::string& name) {
  const auto found = std::find(std::begin(kNames), std::end(kNames), name);
  return found == std::end(kNames) ? Code::failed : static_cast<Code>(found - std::begin(kNames));
}

Error::Error(const std::string& what, std::string where, std::string hint)
    : Error(Fault{.what = what, .where = std::move(where), .hint = std::move(hint)}) {}

Error::Error(Fault fault)
    : std::runtime_error(fault.what), fault_(std::make_shared<const Fault>(std::move(fault))) {}

Error::~Error() = default;

Error& Error::of(Code code, std::vector<int> ranks) {
  auto changed = *fault_;
  changed.code = code;
  changed.ranks = std::move(ranks);
  fault_ = std::make_shared<const Fault>(std::move(changed));
  return *this;
}

ExitStatus Error::exit_status() const {
  return kFailed;
}

InputError::InputError(const std::string& what, std::string where, std::string hint)
    : Error(
          Fault{.code = Code::bad_input, .what = what, .where = std::move(where), .hint = std::move(hint)}) {}

InputError::InputError(Fault fault) : Error(std::move(fault)) {}

InputError::~InputError() = default;

InputError& InputError::of(Code code, std::vector<int> ranks) {
  Error::of(code, std::move(ranks));
  return *this;
}

ExitStatus InputError::exit_status() const {
  return kBadInput;
}

namespace {

// libtorch appends a stack trace
std::string without_stack(const std::string& what) {
  return what.substr(0, what.find("\nException raised from "));
}

Fault fault_of_other(const std::exception& error) {
  Fault fault;
  fault.what = without_stack(error.what());
  if (exit_status(error) == kBadInput) fault.code = Code::bad_input;
  if (const auto* files = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    fault.what = files->code().message();
    fault.where = base::printable(files->path1().string(), base::kLongestPath);
    fault.hint = "check the path and its permissions";
  } else if (base::is_out_of_memory(error)) {
    fault.code = Code::no_memory;
    const bool on_gpu = fault.what.find("CUDA out of memory") != std::string::npos ||
                        fault.what.find("CUDA error: out of memory") != std::string::npos;
    fault.what = on_gpu ? fault.what.substr(0, fault.what.find(" If reserved but unallocated"))
                        : "there is not enough memory (" + fault.what + ")";
    fault.hint = on_gpu ? base::kMoreGpuMemory : base::kMoreMemory;
  }
  return fault;
}

}  // namespace

Fault fault_of(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  if (!known) return fault_of_other(error);
  auto fault = known->fault();
  fault.what = without_stack(fault.what);
  return fault;
}

std::string describe(const std::exception& error) {
  const auto fault = fault_of(error);
  auto text = fault.what;
  if (!fault.where.empty()) text += "\n  --> " + fault.where;
  if (!fault.hint.empty()) text += "\n  hint: " + fault.hint;
  return text;
}

ExitStatus exit_status(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  if (known) return known->exit_status();
  const auto* files = dynamic_cast<const std::filesystem::filesystem_error*>(&error);
  return files && is_about_the_path(files->code()) ? kBadInput : kFailed;
}

}  // namespace lockstep
