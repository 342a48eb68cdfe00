#pragma once
// Whatever is wrong with an exported file, as one InputError that names it.

#include <c10/util/Exception.h>

#include <string>
#include <utility>

#include "lockstep/base/json.h"
#include "lockstep/exported/field.h"

namespace lockstep::exported {

/// What `work` returns. A Refusal, JSON of another form and an error of libtorch's become an InputError.
template <class Work>
auto refusing(const std::string& path, Work&& work) {
  constexpr const char* kOtherwise = "the exported model is not as torch.export writes it: ";
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
