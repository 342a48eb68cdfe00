#include <cstdio>

#include "base/error.h"
int main() {
  std::puts("lockstep");
  return lockstep::kDone;
}
