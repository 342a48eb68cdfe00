#pragma once
// ${NAME}, ${NAME:-default} and $$ in paths, in a default too. Nothing else is special, and no shell is
// asked.

#include <map>
#include <string>
#include <vector>

namespace lockstep::config {

/// `what` and `where` are for the error: the key, and its place in the file.
std::string expand(const std::string& text, const std::map<std::string, std::string>& environment,
                   const std::string& what, const std::string& where);

/// The text that expand() turns back into this one.
std::string unexpand(const std::string& text);

/// The names that the text mentions as ${NAME}, wherever they stand.
std::vector<std::string> names_in_braces(const std::string& text);

}  // namespace lockstep::config
