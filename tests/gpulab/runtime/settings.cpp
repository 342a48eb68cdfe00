#include "settings.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "../lab.h"

namespace pretended {
namespace {

[[noreturn]] void refuse(const char* variable, const char* value) {
  std::fprintf(stderr, "[gpulab] %s is '%s', which is no number\n", variable, value);
  std::abort();
}

long rank() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "RANK", "SLURM_PROCID"})
    if (text(variable)) return number(variable, 0);
  return 0;
}

double milliseconds(const char* variable) {
  const char* value = text(variable);
  if (!value) return 0;
  char* end = nullptr;
  const double result = std::strtod(value, &end);
  if (*end != '\0') refuse(variable, value);
  return result;
}

}  // namespace

const char* text(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value ? value : nullptr;
}

long number(const char* variable, long otherwise) {
  const char* value = text(variable);
  if (!value) return otherwise;
  char* end = nullptr;
  const long result = std::strtol(value, &end, 10);
  if (*end != '\0') refuse(variable, value);
  return result;
}

bool fails_here(long otherwise) {
  const long wanted = number("LAB_FAIL_RANK", otherwise);
  return wanted < 0 || wanted == rank();
}

}  // namespace pretended

namespace lab {

double delay_ms() {
  static const double value = pretended::milliseconds("LAB_DELAY_MS");
  return value;
}

void pause() {
  if (delay_ms() > 0) std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(delay_ms()));
}

bool strict() {
  static const bool value = pretended::number("LAB_STRICT", 0) != 0;
  return value;
}

}  // namespace lab
