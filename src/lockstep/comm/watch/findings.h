#pragma once
// Who is at fault, as ranks find it and tell each other: a Fault, and one without words where nobody is seen
// to be.

#include <string>
#include <vector>

#include "lockstep/base/fault.h"
#include "lockstep/comm/meet/peers.h"

namespace lockstep::comm {

/// Whether somebody is at fault.
bool is_any(const Fault& found);
/// Both, one behind the other.
void add(Fault& found, const Fault& more);

/// All of them are at fault, in one way.
Fault finding(const std::vector<Peer>& peers, Code code, const std::string& what, RankCall like);

/// As a page and the store keep it, with some of the ranks; a page may cut the words, which come last.
std::string packed(const Fault& found);
/// Of anything else: nobody.
Fault unpacked(const std::string& text);

}  // namespace lockstep::comm
