#pragma once
// Several programs as one source: most of what a compiler takes for a program goes to the headers, and is
// paid once.

#include <string>
#include <vector>

namespace lockstep::workshop {

/// One source of all these, each of which returns from its main(). The program is the one whose number, from
/// 0 on, stands behind the last dot of the name by which it is called.
std::string together(const std::vector<std::string>& programs);

}  // namespace lockstep::workshop
