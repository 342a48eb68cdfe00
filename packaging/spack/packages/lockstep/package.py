"""lockstep for Spack 1.0 and later: docs/install.md says how.

Tried with Spack 1.2.0.dev0 and the packages of July 2026: it passes `spack audit packages`; lockstep, lockstep+tests and
lockstep+cuda concretize, also with MPICH, and with a wheel in the place of py-torch; with that wheel and Debian 12's own
packages `spack install --until cmake` configures it. Not tried: a whole `spack install`, a py-torch that Spack has built,
`spack test`. py-torch@2.7.1 wants `--deprecated`. The variant `mpi` came after that, and was not tried with Spack itself.
"""

import pathlib

from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Lockstep(CMakePackage, CudaPackage):
    """PyTorch's DistributedDataParallel for C++, and the batch jobs that carry it through PBS and Slurm."""

    # The sources are those that this recipe lies in; for others: spack develop, or a `git` in packages.yaml.
    git = pathlib.Path(__file__).resolve().parents[4].as_uri()
    license("Apache-2.0")

    version("main", branch="main")

    variant("mpi", default=True, description="The plug-in for this MPI; without it, one with the ABI of MPI 5 alone")
    variant("tests", default=False, description="Build the unit tests, which spack install --test=root runs")

    generator("ninja")
    depends_on("c", type="build")
    depends_on("cxx", type="build")
    conflicts("+tests", when="~mpi", msg="the unit tests run under an MPI")
    conflicts("%gcc@:10", msg="lockstep is C++20")
    depends_on("cmake@3.24:", type="build")
    depends_on("pkgconfig", type="build")

    depends_on("mpi@3:", when="+mpi")
    depends_on("yaml-cpp")
    depends_on("nlohmann-json")
    depends_on("hwloc")
    depends_on("zlib-api")
    depends_on("libpng")
    depends_on("libjpeg-turbo")
    depends_on("fmt")  # used where libtorch brings none
    depends_on("googletest+gmock", when="+tests")

    # libtorch is the one inside py-torch; FindLibtorch.cmake has the versions.
    depends_on("py-torch@2.7: +distributed+gloo")
    depends_on("py-torch~cuda", when="~cuda")
    with when("+cuda"):
        depends_on("py-torch+cuda+nccl")
        depends_on("nccl+cuda")
        for _arch in CudaPackage.cuda_arch_values:
            depends_on(f"py-torch cuda_arch={_arch}", when=f"cuda_arch={_arch}")
            depends_on(f"nccl cuda_arch={_arch}", when=f"cuda_arch={_arch}")

    def cmake_args(self):
        spec = self.spec
        args = [
            self.define("LIBTORCH_ROOT", spec["py-torch"].prefix),
            self.define("LOCKSTEP_CUDA", "ON" if spec.satisfies("+cuda") else "OFF"),
            self.define("LOCKSTEP_TESTS", "ON" if spec.satisfies("+tests") else "OFF"),
            # as CMakePresets.json has it; and Spack's -march must not fuse sums, whose bits are to be Python's
            self.define("CMAKE_CXX_FLAGS_RELEASE", "-O2"),
            self.define("CMAKE_CXX_FLAGS", "-ffp-contract=off"),
        ]
        if spec.satisfies("+mpi"):
            args.append(self.define("MPI_C_COMPILER", spec["mpi"].mpicc))
        else:
            args.append(self.define("CMAKE_DISABLE_FIND_PACKAGE_MPI", "ON"))
        if spec.satisfies("+cuda"):
            args += [
                self.define("CUDAToolkit_ROOT", spec["cuda"].prefix),
                self.define("NCCL_ROOT", spec["nccl"].prefix),
            ]
        return args

    def setup_run_environment(self, env):
        env.set("LOCKSTEP_HOME", join_path(self.prefix.share, "lockstep"))

    def test_whoami(self):
        """the program starts, and knows that it is alone"""
        program = which(self.prefix.bin.lockstep)
        assert "alone" in program("whoami", output=str.split, error=str.split)

    def test_dry_run(self):
        """the installed configs and data are found from any folder"""
        which(self.prefix.bin.lockstep)("train", "configs/pima.yaml", "--dry-run")
