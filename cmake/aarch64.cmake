# A toolchain: lockstep for aarch64, compiled on another machine by Debian's g++-aarch64-linux-gnu (docs/how-to/install.md).
# -DLOCKSTEP_AARCH64=FOLDER is where arm64 packages were unpacked: it has usr/include and usr/lib/aarch64-linux-gnu.
#   dpkg --add-architecture arm64 && apt-get update && apt-get install g++-aarch64-linux-gnu qemu-user && mkdir arm64 && cd arm64
#   apt-get download nlohmann-json3-dev googletest $(printf '%s:arm64 ' libyaml-cpp-dev libyaml-cpp0.7 libfmt-dev libhwloc-dev \
#     libboost-program-options1.74-dev libboost-program-options1.74.0 libboost1.74-dev libhwloc15 libudev1 zlib1g-dev zlib1g \
#     libpng-dev libpng16-16 libjpeg62-turbo-dev libjpeg62-turbo libgtest-dev)
#   for package in *.deb; do dpkg -x "$package" sysroot; done; cp -a sysroot/lib/. sysroot/usr/lib/
# LIBTORCH_ROOT is the torch folder of PyTorch's aarch64 wheel, unzipped beside nvidia-cuda-runtime's and nvidia-cuda-cupti's.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES LOCKSTEP_AARCH64)
if(NOT IS_DIRECTORY "${LOCKSTEP_AARCH64}/usr/lib/aarch64-linux-gnu")
  message(FATAL_ERROR "-DLOCKSTEP_AARCH64 names no folder with arm64 packages: \"${LOCKSTEP_AARCH64}\"; docs/how-to/install.md")
endif()

set(CMAKE_CXX_FLAGS_INIT "-isystem ${LOCKSTEP_AARCH64}/usr/include/aarch64-linux-gnu")
# libraries and headers of that folder alone, programs of this machine
set(CMAKE_FIND_ROOT_PATH ${LOCKSTEP_AARCH64})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${LOCKSTEP_AARCH64})
set(ENV{PKG_CONFIG_LIBDIR} ${LOCKSTEP_AARCH64}/usr/lib/aarch64-linux-gnu/pkgconfig:${LOCKSTEP_AARCH64}/usr/share/pkgconfig)
set(CMAKE_DISABLE_FIND_PACKAGE_MPI TRUE)  # mpicc is this machine's; the headers that scripts/bootstrap fetches do
