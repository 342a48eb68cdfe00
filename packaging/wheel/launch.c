// `lockstep` on the PATH of an environment that pip filled. The program itself lies in site-packages, beside the torch wheel
// whose libraries it loads; this finds it, compares torch's version with the one it was compiled against, looks for what it
// will load, and becomes it. Once the loader has begun, its words are about symbols, and its status is 127.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <gnu/libc-version.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef TORCH
#error "TORCH is the minor version of libtorch: \"2.15\""
#endif
#ifndef LIBRARIES
#error "LIBRARIES are what the program loads, as seen from site-packages: \"torch/lib/libc10.so\", ..."
#endif
#if defined(__x86_64__)
asm(".symver glob, glob@GLIBC_2.2.5");  // the newer one is of glibc 2.27: this has to run where glibc is too old, and say so
#endif
#define BAD_INPUT 2
#define PROGRAM "lockstep_ddp/bin/lockstep"
#define AGAIN "install the wheel again: pip install --force-reinstall --no-deps lockstep_ddp-....whl"

static void fail(const char* what, const char* where, const char* remedy) {
  fprintf(stderr, "error: %s\n  --> %s\n  hint: %s\n", what, where, remedy);
  exit(BAD_INPUT);
}

// The environment's folder: what holds the bin/ that this lies in.
static void find_prefix(char* prefix) {
  const ssize_t length = readlink("/proc/self/exe", prefix, PATH_MAX - 1);
  if (length < 0) fail("cannot find the folder of this program", "/proc/self/exe", "check that /proc is mounted");
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

// The first library that is not there; NULL where all are. NVIDIA's are asked for by torch wheels for CUDA alone.
static const char* missing(const char* site, const char* version) {
  static const char* const kLibraries[] = {LIBRARIES};
  for (size_t i = 0; i < sizeof kLibraries / sizeof *kLibraries; ++i) {
    char path[PATH_MAX * 2];
    snprintf(path, sizeof path, "%s/%s", site, kLibraries[i]);
    const int wanted = strncmp(kLibraries[i], "nvidia/", 7) != 0 || strstr(version, "+cu");
    if (wanted && access(path, R_OK) != 0) return kLibraries[i];
  }
  return NULL;
}

static void require_whole(const char* site, const char* version) {
  const char* library = missing(site, version);
  if (!library) return;
  const int ours = strncmp(library, "lockstep_ddp/", 13) == 0;
  char what[512];
  snprintf(what, sizeof what, "the installation of %s is incomplete: there is no %s", ours ? "lockstep" : "torch " TORCH, library);
  fail(what, site, ours ? AGAIN : "run pip install --force-reinstall 'torch==" TORCH ".*'");
}

// RHEL 8's, as the names of torch's wheels and of this one say. pip asks for it where it installs, and not where it is run.
static void require_glibc(void) {
  int major = 0, minor = 0;
  char what[256];
  sscanf(gnu_get_libc_version(), "%d.%d", &major, &minor);
  if (major > 2 || (major == 2 && minor >= 28)) return;
  snprintf(what, sizeof what, "torch " TORCH " and this lockstep need glibc 2.28, but this system has %s", gnu_get_libc_version());
  fail(what, "the system's C library", "use a newer node or a container: docs/how-to/install.md#apptainer");
}

// The one that the program will get: LD_LIBRARY_PATH may put another in front of the system's.
static void require_libstdcxx(void) {
  void* library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_LOCAL);
  if (!library)
    fail("the C++ library cannot be loaded", dlerror(), "run dnf install libstdc++ or apt-get install libstdc++6, or unset LD_LIBRARY_PATH");
  if (dlvsym(library, "_ZNKSt13random_device13_M_getentropyEv", "GLIBCXX_3.4.25")) return;
  struct link_map* map = NULL;
  dlinfo(library, RTLD_DI_LINKMAP, &map);
  fail("this lockstep needs the libstdc++ of gcc 8 (GLIBCXX_3.4.25) or newer, but an older one is found first",
       map ? map->l_name : "libstdc++.so.6", "unset LD_LIBRARY_PATH, or load the module of a newer gcc");
}

// Becomes the program where torch fits; else comes back with what is wrong.
static void try_site(const char* site, char** argv, char* what, size_t room) {
  char version[64], program[PATH_MAX * 2];
  if (!torch_version(site, version, sizeof version)) {
    snprintf(what, room, "this lockstep loads the libraries of torch " TORCH ", but torch is not installed next to it");
  } else if (!is_ours(version)) {
    snprintf(what, room, "this lockstep was compiled against torch " TORCH ", but torch %s is installed next to it", version);
  } else {
    require_whole(site, version);
    require_glibc();
    require_libstdcxx();
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
  if (!*first) fail("the program of this command is missing: the installation is incomplete", prefix, AGAIN);
  fail(first, where, "run pip install --ignore-installed 'torch==" TORCH ".*', or install the lockstep wheel for that torch");
}
