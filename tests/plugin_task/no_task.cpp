// A shared library that is no task at all.
extern "C" int rings() {
  return 2;
}
