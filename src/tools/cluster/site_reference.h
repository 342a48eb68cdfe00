#pragma once
// The keys of a site file as a page has them.

#include <string>

namespace lockstep::cluster {

/// Two tables in Markdown: a site's keys, and a queue's.
std::string site_reference();

}  // namespace lockstep::cluster
