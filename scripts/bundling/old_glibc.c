// What our objects ask of the C library of the machine that compiled them, and the baseline's has not. Linked
// in and hidden.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

// glibc 2.32; libstdc++ counts references without locks where it is true. False is always right.
char __libc_single_threaded = 0;

// glibc 2.30. Where the machine has it, its own; else on the wall clock, as libstdc++ waited before there was
// one.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* end) {
  int (*real)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*) =
      (int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*))dlsym(
          RTLD_NEXT, "pthread_cond_clockwait");
  if (real) return real(condition, mutex, clock, end);
  struct timespec now, wall;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &wall);
  wall.tv_sec += end->tv_sec - now.tv_sec;
  wall.tv_nsec += end->tv_nsec - now.tv_nsec;
  if (wall.tv_nsec < 0) {
    wall.tv_nsec += 1000000000;
    wall.tv_sec -= 1;
  } else if (wall.tv_nsec >= 1000000000) {
    wall.tv_nsec -= 1000000000;
    wall.tv_sec += 1;
  }
  if (wall.tv_sec < 0) return ETIMEDOUT;
  return pthread_cond_timedwait(condition, mutex, &wall);
}

// glibc 2.32
const char* sigabbrev_np(int number) {
  static const struct {
    int number;
    const char* name;
  } names[] = {{SIGHUP, "HUP"},   {SIGINT, "INT"},       {SIGQUIT, "QUIT"}, {SIGILL, "ILL"},
               {SIGTRAP, "TRAP"}, {SIGABRT, "ABRT"},     {SIGBUS, "BUS"},   {SIGFPE, "FPE"},
               {SIGKILL, "KILL"}, {SIGUSR1, "USR1"},     {SIGSEGV, "SEGV"}, {SIGUSR2, "USR2"},
               {SIGPIPE, "PIPE"}, {SIGALRM, "ALRM"},     {SIGTERM, "TERM"}, {SIGSTKFLT, "STKFLT"},
               {SIGCHLD, "CHLD"}, {SIGCONT, "CONT"},     {SIGSTOP, "STOP"}, {SIGTSTP, "TSTP"},
               {SIGTTIN, "TTIN"}, {SIGTTOU, "TTOU"},     {SIGURG, "URG"},   {SIGXCPU, "XCPU"},
               {SIGXFSZ, "XFSZ"}, {SIGVTALRM, "VTALRM"}, {SIGPROF, "PROF"}, {SIGWINCH, "WINCH"},
               {SIGPOLL, "POLL"}, {SIGPWR, "PWR"},       {SIGSYS, "SYS"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
    if (names[i].number == number) return names[i].name;
  return NULL;
}

// Debian's archives are made for programs, and reach these as if they lay in the same file: here they do.
FILE *lockstep_stdout, *lockstep_stderr;
char* lockstep_invocation_name;
__attribute__((constructor)) static void find_them(void) {
  lockstep_stdout = stdout;
  lockstep_stderr = stderr;
  lockstep_invocation_name = program_invocation_name;
}

// hwloc asks udev for the models of disks only; without it, it reads /run/udev itself.
void* udev_new(void) {
  return NULL;
}
void* udev_unref(void* udev) {
  return udev;
}
void* udev_device_new_from_subsystem_sysname(void* udev, const char* subsystem, const char* name) {
  (void)udev, (void)subsystem, (void)name;
  return NULL;
}
const char* udev_device_get_property_value(void* device, const char* key) {
  (void)device, (void)key;
  return NULL;
}
void* udev_device_unref(void* device) {
  return device;
}

// hwloc's plug-ins of the machine belong to another hwloc.
void* lockstep_no_plugin(const char* path, int flags) {
  (void)path, (void)flags;
  return NULL;
}
