#include "lockstep/base/files/standard_descriptors.h"

#include <fcntl.h>
#include <unistd.h>

namespace lockstep::base {

void open_standard_descriptors() {
  int number = 0;
  do {
    number = ::open("/dev/null", O_RDWR);  // takes the lowest that is free
  } while (number >= 0 && number <= STDERR_FILENO);
  if (number >= 0) ::close(number);
}

}  // namespace lockstep::base
