#include "tools/bench/report.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::bench {

void check_out(const std::string& file) {
  if (file.empty() || file.ends_with(".html") || file.ends_with(".svg")) return;
  throw InputError(format("'{}' is neither a page nor a picture", base::printable(file)), "--out",
                   "name a file that ends in .html or .svg");
}

void check_place(const std::string& file) {
  if (!file.empty()) base::check_output(file, "name another with --out");
}

void write_out(const std::string& file, const std::string& title, const std::vector<plot::Section>& sections,
               const std::string& picture) {
  if (file.empty()) return;
  const auto text = file.ends_with(".svg") ? picture + "\n" : plot::page(title, sections);
  base::write_output(file, text, "name another file with --out");
}

}  // namespace lockstep::bench
