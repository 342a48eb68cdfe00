// Preloaded: a file system without flock, and a host of another name where HOST_NAME says one.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int flock(int file, int operation) {
  (void)file, (void)operation;
  errno = ENOLCK;
  return -1;
}

int gethostname(char* name, size_t size) {
  const char* told = getenv("HOST_NAME");
  strncpy(name, told ? told : "here", size);
  return 0;
}
