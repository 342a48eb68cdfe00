#include "inventory.h"

#include <algorithm>
#include <cstdio>

#include "settings.h"

namespace pretended {
namespace {

// The first byte is the same for all, so that a prefix may be ambiguous; the second tells them apart.
Uuid make_uuid(unsigned char kind, int number) {
  Uuid uuid;
  uuid.fill(0x5a);
  uuid[0] = kind;
  uuid[1] = static_cast<unsigned char>(number + 1);
  return uuid;
}

std::string written(const char* prefix, const Uuid& uuid) {
  std::string result = prefix;
  for (size_t i = 0; i < uuid.size(); ++i) {
    char digits[4];
    std::snprintf(digits, sizeof digits, "%02x", uuid[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) result += '-';
    result += digits;
  }
  return result;
}

}  // namespace

std::vector<Device> machine() {
  const auto count = static_cast<int>(std::clamp<long>(number("LAB_GPUS", 4), 0, kMaxDevices));
  const bool divided = number("LAB_MIG", 0) != 0;
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i)
    devices.push_back(divided ? Device{i / kSlices, i % kSlices} : Device{i, -1});
  return devices;
}

Uuid uuid_of_gpu(int gpu) {
  return make_uuid(0x1a, gpu);
}

Uuid uuid_of(const Device& device) {
  return device.slice < 0 ? uuid_of_gpu(device.gpu) : make_uuid(0x3c, device.gpu * kSlices + device.slice);
}

std::string name_of_gpu(int gpu) {
  return written("GPU-", uuid_of_gpu(gpu));
}

std::string name_of(const Device& device) {
  return device.slice < 0 ? name_of_gpu(device.gpu) : written("MIG-", uuid_of(device));
}

int bus_of(const Device& device) {
  return device.gpu + 1;
}

std::string bus_text(const Device& device) {
  char text[32];
  std::snprintf(text, sizeof text, "%04X:%02X:00.0", static_cast<unsigned>(kDomain),
                static_cast<unsigned>(bus_of(device)));
  return text;
}

}  // namespace pretended
