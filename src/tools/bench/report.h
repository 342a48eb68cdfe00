#pragma once
// Where a bench's pictures go: a page for a browser, or a picture alone.

#include <string>
#include <vector>

#include "tools/plot/page.h"

namespace lockstep::bench {

/// InputError where `file` is neither .html nor .svg.
void check_out(const std::string& file);

/// InputError where it cannot be written; of rank 0, before anything is measured.
void check_place(const std::string& file);

/// FILE.html: the page; FILE.svg: `picture` alone. Nothing where `file` is empty.
void write_out(const std::string& file, const std::string& title, const std::vector<plot::Section>& sections,
               const std::string& picture);

}  // namespace lockstep::bench
