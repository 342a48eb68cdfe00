#pragma once
// A sample's pixels as an image inside the page.

#include <string>

#include "tools/report/run_data.h"

namespace lockstep::report {

/// "data:image/bmp;base64,...", or nothing where the sample has no sound pixels.
std::string image_uri(const nlohmann::json& sample);

/// RFC 4648.
std::string base64(const std::string& bytes);

}  // namespace lockstep::report
