#pragma once
// The records of a file that torch.export.save wrote, each checked before it is read.

#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/zip.h"

namespace lockstep::exported {

/// What to do about a file that cannot be used.
inline constexpr const char* kExportAgain =
    "export it again: torch.export.save(torch.export.export(model.train(), inputs), \"model.pt2\")";

class Archive {
 public:
  /// InputError for what is no such file, or one of a torch before 2.9, which wrote another layout.
  explicit Archive(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const checkpoint::ZipArchive& zip() const { return zip_; }
  /// What was read from it, unless the file became shorter meanwhile: then an Error.
  template <class Value>
  Value whole(Value value) const {
    return file_.whole(std::move(value));
  }
  /// The first digits of the record's SHA-256.
  std::string digest(const std::string& name) const;
  /// InputError for what is no JSON, too, or too much of it.
  nlohmann::json json(const std::string& name) const;

 private:
  checkpoint::ZipArchive open() const;
  void check_layout() const;
  void expect(const std::string& name, const std::string& wanted) const;
  [[noreturn]] void refuse(const std::string& what, const std::string& hint = kExportAgain) const;

  checkpoint::MappedFile file_;
  checkpoint::ZipArchive zip_;
};

// Values of the JSON in an exported file: unions, names, numbers and torch's enumerations, each checked.

using Json = nlohmann::json;

/// Why a file is not taken; whoever knows the file makes an InputError of it.
struct Refusal : std::runtime_error {
  explicit Refusal(const std::string& what, std::string advice = kExportAgain)
      : std::runtime_error(what), hint(std::move(advice)) {}
  std::string hint;
};

/// A union: the one field that is not null.
struct Field {
  const std::string& name;
  const Json& value;
};
Field only_field(const Json& json);

/// A name from the file, safe to print.
std::string shown(const std::string& name);

std::string text_at(const Json& json, const char* key);
/// A whole number and nothing else.
int64_t whole_number(const Json& json);
/// Also "Infinity", "-Infinity" and "NaN", which are no JSON numbers.
double number_of(const Json& json);
/// A size that is a number in the file, not a symbol.
int64_t fixed_size(const Json& json);

/// torch.export's own numbers, which are not c10's.
at::ScalarType scalar_type_of(const Json& json);
at::MemoryFormat memory_format_of(const Json& json);
at::Layout layout_of(const Json& json);
at::Device device_of(const Json& json);

// Whatever is wrong with an exported file, as one InputError that names it.

/// What `work` returns. A Refusal, JSON of another form and an error of libtorch's become an InputError.
template <class Work>
auto refusing(const std::string& path, Work&& work) {
  constexpr const char* kOtherwise = "the exported model does not have torch.export's format: ";
  try {
    return std::forward<Work>(work)();
  } catch (const Refusal& refusal) {
    throw InputError(std::string("the exported model cannot be used: ") + refusal.what(), path, refusal.hint);
  } catch (const nlohmann::json::exception& error) {
    throw InputError(kOtherwise + base::what_is_wrong(error), path, kExportAgain);
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    throw InputError(kOtherwise + text.substr(0, text.find('\n')), path, kExportAgain);
  }
}

}  // namespace lockstep::exported
