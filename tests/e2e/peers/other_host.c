// Preloaded: a host of another name, HOST_NAME.
#include <stdlib.h>
#include <string.h>

int gethostname(char* name, size_t size) {
  const char* told = getenv("HOST_NAME");
  strncpy(name, told ? told : "here", size);
  return 0;
}
