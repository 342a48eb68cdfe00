#include "lockstep/launch/process/text_exchange.h"

#include "lockstep/base/files/pack.h"

namespace lockstep::launch {

std::vector<std::string> TextExchange::all_gather(const std::string& text) {
  return base::unpack_texts(broadcast(base::pack_texts(gather(text))));
}

}  // namespace lockstep::launch
