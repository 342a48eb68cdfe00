#pragma once
// What a check of the doctor found: a verdict, a sentence, and what to do about it.

#include <string>
#include <vector>

namespace lockstep::doctor {

enum class FindingLevel { ok, warning, failure };

struct Finding {
  FindingLevel verdict = FindingLevel::ok;
  std::string says;          // one line
  std::string remedy = {};   // what to do; empty where all is well
  std::string drawing = {};  // lines that a person looks at below it: a table, a topology
  std::string check = {};    // the check's name; the table fills it in
};

using Findings = std::vector<Finding>;

inline Finding fine(std::string says, std::string drawing = {}) {
  return {FindingLevel::ok, std::move(says), {}, std::move(drawing)};
}
inline Finding warn(std::string says, std::string remedy, std::string drawing = {}) {
  return {FindingLevel::warning, std::move(says), std::move(remedy), std::move(drawing)};
}
inline Finding fail(std::string says, std::string remedy, std::string drawing = {}) {
  return {FindingLevel::failure, std::move(says), std::move(remedy), std::move(drawing)};
}

const char* name_of(FindingLevel verdict);

}  // namespace lockstep::doctor
