// `lockstep` on the PATH of an environment that pip filled. The program itself lies in site-packages, beside the torch wheel
// whose libraries it loads; this finds it, compares torch's version with the one it was compiled against, and becomes it. Once
// the loader has begun with another libtorch, its words are about symbols.
#define _GNU_SOURCE
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef TORCH
#error "TORCH is the minor version of libtorch: \"2.15\""
#endif
#define BAD_INPUT 2
#define PROGRAM "lockstep_ddp/bin/lockstep"
#define AGAIN "install the wheel again: pip install --force-reinstall --no-deps lockstep_ddp-....whl"

static void fail(const char* what, const char* where, const char* remedy) {
  fprintf(stderr, "error: %s\n  where: %s\n  to do: %s\n", what, where, remedy);
  exit(BAD_INPUT);
}

// The environment's folder: what holds the bin/ that this lies in.
static void find_prefix(char* prefix) {
  const ssize_t length = readlink("/proc/self/exe", prefix, PATH_MAX - 1);
  if (length < 0) fail("it cannot be found where this program lies", "/proc/self/exe", "is /proc mounted?");
  prefix[length] = '\0';
  for (int up = 0; up < 2; ++up) {
    char* slash = strrchr(prefix, '/');
    if (slash) *slash = '\0';
  }
}

// PREFIX/lib/python3.12/site-packages and its like, Debian's dist-packages, and what `pip install --target` fills.
static const char* const kPlaces[] = {"lib/python3*/site-packages", "lib64/python3*/site-packages", "lib/python3*/dist-packages",
                                      "local/lib/python3*/dist-packages", "lib/python3/dist-packages", "."};

// A path as glob() takes it word by word.
static void escape(const char* path, char* escaped, size_t room) {
  size_t used = 0;
  for (; *path && used + 3 < room; ++path) {
    if (strchr("*?[]\\", *path)) escaped[used++] = '\\';
    escaped[used++] = *path;
  }
  escaped[used] = '\0';
}

// "2.15.0+cu132" of torch/version.py; 0 where there is no such file.
static int torch_version(const char* site, char* version, size_t room) {
  char path[PATH_MAX * 2], line[256];
  snprintf(path, sizeof path, "%s/torch/version.py", site);
  FILE* file = fopen(path, "re");
  if (!file) return 0;
  version[0] = '\0';
  while (!version[0] && fgets(line, sizeof line, file)) {
    const char* begin = strncmp(line, "__version__ = '", 15) == 0 ? line + 15 : NULL;
    if (begin) snprintf(version, room, "%.*s", (int)strcspn(begin, "'"), begin);
  }
  fclose(file);
  return 1;
}

static int is_ours(const char* version) {
  const size_t length = strlen(TORCH);
  return strncmp(version, TORCH, length) == 0 && version[length] == '.';
}

static int has_libraries(const char* site) {
  char path[PATH_MAX * 2];
  snprintf(path, sizeof path, "%s/torch/lib/libtorch_cpu.so", site);
  return access(path, R_OK) == 0;
}

// Becomes the program where torch fits; else comes back with what is wrong.
static void try_site(const char* site, char** argv, char* what, size_t room) {
  char version[64], program[PATH_MAX * 2];
  if (!torch_version(site, version, sizeof version) || !has_libraries(site)) {
    snprintf(what, room, "this lockstep loads the libraries of torch " TORCH ", and there is no torch beside it");
  } else if (!is_ours(version)) {
    snprintf(what, room, "this lockstep was compiled against torch " TORCH ", and beside it is torch %s", version);
  } else {
    snprintf(program, sizeof program, "%s/" PROGRAM, site);
    execv(program, argv);
    fail(strerror(errno), program, AGAIN);
  }
}

// Tries each site-packages with the program in it: several Pythons may share a prefix. The first one is spoken of.
int main(int argc, char** argv) {
  char prefix[PATH_MAX], place[PATH_MAX * 2], pattern[PATH_MAX * 3], what[256], first[256] = "", where[PATH_MAX * 2] = "";
  (void)argc;
  find_prefix(prefix);
  escape(prefix, place, sizeof place);
  for (size_t i = 0; i < sizeof kPlaces / sizeof *kPlaces; ++i) {
    snprintf(pattern, sizeof pattern, "%s/%s/" PROGRAM, place, kPlaces[i]);
    glob_t found;
    const size_t count = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    for (size_t k = 0; k < count; ++k) {
      char* site = strndup(found.gl_pathv[k], strlen(found.gl_pathv[k]) - strlen(PROGRAM) - 1);
      try_site(site, argv, what, sizeof what);
      if (!*first) {
        snprintf(first, sizeof first, "%s", what);
        snprintf(where, sizeof where, "%s", site);
      }
      free(site);
    }
    globfree(&found);
  }
  if (!*first) fail("the program that belongs to this command is not there: half an installation", prefix, AGAIN);
  fail(first, where, "pip install --ignore-installed 'torch==" TORCH ".*', or the wheel of lockstep for that torch");
}
