"""Finds the CUDA toolkit. The build and the scripts both ask here, so they agree on which one.

    cuda_toolkit.py              prints the path of nvcc, or says what is missing and exits 3
    cuda_toolkit.py --version    nvcc's version instead
    cuda_toolkit.py --cupti      the path of CUPTI, the library that profilers are built on
    cuda_toolkit.py --tile       the nvcc that compiles CUDA Tile C++
    cuda_toolkit.py --check      nothing, where nvcc takes the host compiler that it gets
    cuda_toolkit.py --machine    nothing, or why programs cannot use this machine's GPUs; those
                                 that are to be built: --machine --builds
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from typing import NamedTuple

from shared.command_line import PROJECT
from shared.host_compiler import output, words

OLDEST_RELEASE = (12, 0)  # the first with C++20 and with sm_90a
OLDEST_ARCH = 75  # Turing
USUAL_ARCHS = (75, 80, 90)  # without a GPU: together they take every path through the sources
OLDEST_TILE_RELEASE = (13, 3)  # the first whose nvcc compiles CUDA Tile C++
TILE_FOLDER = ".venv/tile"  # where scripts/setup.sh --tile puts such an nvcc

# How every program is compiled, in the project's folder; a debug build has other flags than
# OPTIMIZED. Kernels are always compiled with full optimization: -Og is for the code around them,
# which takes twice as long to compile with -O3 and only launches, waits and prints.
FLAGS = ["-std=c++20", "-Iinclude", "-Isrc"]
OPTIMIZED = ["-Xcompiler=-Og", "-lineinfo"]


class ToolkitError(Exception):
    """No usable toolkit. The message is one line that says what to do."""


class Toolkit(NamedTuple):
    nvcc: str
    version: str  # "13.0.88"
    lib_dir: str  # holds cuBLAS, and beside it the other libraries that belong to this nvcc
    math_include: str = ""  # cuBLAS's headers, where nvcc does not look: in NVIDIA's HPC SDK

    @property
    def flags(self):
        """What every call of nvcc gets, beside FLAGS."""
        host = host_compiler()
        flags = [f"-ccbin={host}"] if host else []
        return flags + ([f"-isystem={self.math_include}"] if self.math_include else [])

    def check_host_compiler(self):
        """Raises ToolkitError where nvcc refuses its host compiler, as it does one that is newer
        than itself."""
        done = subprocess.run([self.nvcc, *self.flags, *FLAGS, "-E", "-x", "cu", os.devnull],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              universal_newlines=True, cwd=PROJECT)
        if done.returncode == 0:
            return
        host = host_compiler() or "g++"
        said = re.findall(r"unsupported \w+ version! (.*?)[ .!]* The nvcc flag", done.stdout)
        said += re.findall(r"(?:error|fatal)\b[ :]*(.*)", done.stdout) or ["it fails"]
        raise ToolkitError(f"CUDA {self.version} does not compile with {host}: {said[0].strip()}; "
                           "NVCC_CCBIN=g++-12, say, names another compiler for nvcc")

    def architectures(self):
        """What nvcc makes machine code for, as ascending numbers: [75, 80, 86, ...]."""
        codes = output([self.nvcc, "--list-gpu-code"])
        return sorted({int(code) for code in re.findall(r"^sm_(\d+)$", codes, re.MULTILINE)})

    def builds_for(self, arch):
        """Whether nvcc makes machine code for an architecture as it spells it: "86", "90a"."""
        number = _number(arch) if re.fullmatch(r"[1-9]\d{1,2}|(9\d|1\d\d)a", arch) else 0
        return number in self.architectures()

    def choose(self, request):
        """The architectures to build for, as nvcc spells them: ["86", "90a"]. `request`: "86,90a",
        "all", or nothing for this machine's GPUs. Raises ValueError."""
        known = [number for number in self.architectures() if number >= OLDEST_ARCH]
        if request in ("", "all"):
            here = [gpu for gpu in gpus_here() if gpu >= known[0] and request != "all"]
            # A GPU newer than the toolkit gets the newest PTX that the toolkit can make.
            numbers = {max(number for number in known if number <= gpu) for gpu in here}
            if not numbers:
                numbers = known if request == "all" else set(USUAL_ARCHS) & set(known)
            wanted = [target(number) for number in numbers]
        else:
            wanted = request.split(",")
            if not all(self.builds_for(arch) and _number(arch) >= OLDEST_ARCH for arch in wanted):
                raise ValueError(f"arch={request}: CUDA {self.version} builds for "
                                 f"{' '.join(map(str, known))} here, also 90a and up with the a; "
                                 "separate several by commas")
        return sorted(set(wanted), key=lambda arch: (_number(arch), arch))

    def tool(self, name):
        """The path of a program that not every installation has, such as nvdisasm, or None."""
        folders = [os.path.dirname(self.nvcc)] + os.environ.get("PATH", "").split(os.pathsep)
        folders += [os.path.join(root, "bin") for root in _wheels()]
        return shutil.which(name, path=os.pathsep.join(folders))

    def link_flag(self, name):
        """The linker's flag for lib<name>.so; wheels carry only versioned names."""
        return "-l:" + os.path.basename(_library_files(self.lib_dir, name)[0])

    def include_dirs(self):
        """Where this toolkit's headers may lie, CUPTI's too."""
        home = os.path.dirname(os.path.dirname(self.nvcc))
        beside = os.path.join(os.path.dirname(self.lib_dir), "include")
        own = [os.path.join(home, folder) for folder in ("include", "extras/CUPTI/include")]
        return [self.math_include or beside, *own, "/usr/include"]

    def has_header(self, name):
        return any(os.path.exists(os.path.join(folder, name)) for folder in self.include_dirs())

    def nccl(self):
        """NCCL's flags for nvcc and for the linker; None where it is not installed: beside the
        toolkit, as a wheel, or by the system."""
        places = [("", self.lib_dir)] if self.has_header("nccl.h") else []
        places += [(os.path.join(folder, "nvidia/nccl/include"),
                    os.path.join(folder, "nvidia/nccl/lib")) for folder in _site_packages()]
        places.append(("/usr/include", _system_libraries()))
        for include, folder in places:
            header = not include or os.path.exists(os.path.join(include, "nccl.h"))
            files = _library_files(folder, "nccl")
            if header and files:
                own = [f"-isystem={include}"] if include not in ("", "/usr/include") else []
                link = [f"-L{folder}", "-l:" + os.path.basename(files[0])]
                return own, link + [f"-Xlinker=-rpath={folder}"]
        return None

    def cupti(self):
        """The path of the library that profilers are built on. Raises ToolkitError without it."""
        home = os.path.dirname(os.path.dirname(self.nvcc))
        for folder in (self.lib_dir, os.path.join(home, "extras/CUPTI/lib64")):
            files = _library_files(folder, "cupti")
            if files and self.has_header("cupti.h"):
                return os.path.realpath(files[0])
        package = "cuda-cupti-" + "-".join(self.version.split(".")[:2])
        raise ToolkitError(f"{self.nvcc} comes without CUPTI: install {package}, or what else your "
                           "toolkit's source calls it")


def find():
    """The first usable toolkit. Raises ToolkitError where there is none."""
    rejected = []
    for nvcc in _candidates():
        try:
            return _inspect(nvcc)
        except ToolkitError as error:
            rejected.append(str(error))
    name, home = _chosen()
    if home and rejected:
        raise ToolkitError(f"{name} is {home}: {rejected[0]}; correct it, or unset it")
    if rejected:
        raise ToolkitError(f"no usable CUDA toolkit: {'; '.join(rejected)}; point CUDA_HOME at "
                           "another")
    raise ToolkitError("no nvcc found: install the CUDA Toolkit (12.0 or later) or point CUDA_HOME "
                       "at it; where there is a GPU, scripts/run.sh installs it")


class TileCompiler(NamedTuple):
    """An nvcc that compiles CUDA Tile C++ too, for the programs that have such kernels."""

    nvcc: str
    version: str
    flags: list  # for nvcc, beside those of every program
    lib_dir: str  # holds its CUDA runtime


def find_tile(toolkit):
    """The compiler of tile kernels: the toolkit's own nvcc where that is new enough, or else what
    scripts/setup.sh --tile installed, with the toolkit's headers of cuBLAS and NVTX. Raises
    ToolkitError where there is none, or TILE=0 is set."""
    if os.environ.get("TILE") == "0":
        raise ToolkitError("TILE=0 leaves out kernels in CUDA Tile C++")
    major = toolkit.version.split(".")[0]  # cuBLAS is the toolkit's, so both must be of one major
    roots = [os.path.dirname(os.path.dirname(toolkit.nvcc))]
    roots.append(os.path.join(PROJECT, TILE_FOLDER, f"nvidia/cu{major}"))
    for root in roots:
        nvcc = os.path.join(root, "bin/nvcc")
        if not os.access(os.path.join(root, "bin/tileiras"), os.X_OK):
            continue
        release, version = _release(nvcc)
        if release >= OLDEST_TILE_RELEASE:
            own = nvcc == toolkit.nvcc
            # cuBLAS, NVTX and CCCL are not beside that nvcc.
            include = toolkit.include_dirs()[1 if toolkit.math_include else 0]
            flags = [] if own else [f"-isystem={include}", f"-isystem={include}/cccl"]
            lib_dir = toolkit.lib_dir if own else os.path.join(root, "lib")
            return TileCompiler(nvcc, version, ["--enable-tile", *flags], lib_dir)
    raise ToolkitError("no compiler of CUDA Tile C++ (nvcc 13.3 or later with tileiras): "
                       "scripts/setup.sh --tile installs one")


def host_compiler():
    """What nvcc is to compile host code with: NVCC_CCBIN, or CXX where that is one word and no
    clang, with which nvcc 13.0 refuses the programs' std::span. Empty: nvcc takes g++."""
    cxx = os.environ.get("CXX", "").strip()
    usable = len(words(cxx)) == 1 and cxx != "g++" and "clang" not in os.path.basename(cxx)
    return os.environ.get("NVCC_CCBIN") or (cxx if usable else "")


def gpus_here():
    """Compute capabilities of this machine's GPUs, as numbers: {86, 90}."""
    answer = _nvidia_smi("--query-gpu=compute_cap", "--format=csv,noheader")
    return {int(major + minor) for major, minor in re.findall(r"^(\d+)\.(\d)$", answer, re.M)}


def unusable(builds=True):
    """Why programs cannot use this machine's GPUs, as far as that shows before they are built;
    empty where they can. Not `builds`: they lie here, whatever built them."""
    newest = max(gpus_here(), default=OLDEST_ARCH)
    if newest < OLDEST_ARCH:
        return f"the GPU has compute capability {newest / 10}, and 7.5 (Turing) or later is needed"
    try:
        version = find().version if builds else ""
    except ToolkitError:
        version = "" if _chosen()[1] else "13.0"  # which setup.sh installs
    needed = 580 if version.startswith("13.") else 525
    driver = re.match(r"\d+", _nvidia_smi("--query-gpu=driver_version", "--format=csv,noheader"))
    if not version or not driver or int(driver[0]) >= needed:
        return ""
    # NVIDIA's package cuda-compat, in many containers, makes an older driver run a newer CUDA.
    runs = re.search(r"CUDA (?:UMD )?Version *: *(\d+)", _nvidia_smi())
    if runs and int(runs[1]) >= int(version.split(".")[0]):
        return ""
    instead = ", or install CUDA 12.x and set CUDA_HOME" if int(driver[0]) >= 525 else ""
    return (f"CUDA {version} needs driver {needed} or later, and this is {driver[0]} (update it"
            f"{instead})")


def _nvidia_smi(*arguments):
    try:
        return subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True,
                              timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def target(number):
    """The architecture to compile for, for a compute capability such as 90, as nvcc spells it:
    sm_90's own instructions (wgmma, setmaxnreg) need the target with the a. On later GPUs no kernel
    here has such instructions (tile kernels get tcgen05 without the a), and code for 100a would not
    run on 10.3, as code for 100 does."""
    return "90a" if number == 90 else str(number)


def machine_code(architectures):
    """nvcc's flags for machine code of those."""
    return [f"-gencode=arch=compute_{a},code=sm_{a}" for a in architectures]


def ptx(architectures):
    """And for PTX of the highest, without the a, which alone later GPUs run."""
    highest = max(map(_number, architectures))
    return [f"-gencode=arch=compute_{highest},code=compute_{highest}"]


def _number(arch):
    """90 for "90a"."""
    return int(arch.rstrip("a"))


def _chosen():
    """The variable that says which toolkit to take, and its value: ("CUDA_HOME", "/opt/cuda")."""
    return next(((name, os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH")
                 if os.environ.get(name)), ("", ""))


def _candidates():
    """The nvcc that the user chose, or else every one in the usual places, in order of
    preference."""
    _, home = _chosen()
    if home:
        return [os.path.join(home, "bin/nvcc")]
    on_path = shutil.which("nvcc")
    roots = [os.path.dirname(os.path.dirname(on_path))] if on_path else []
    roots += ["/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda", *_wheels()]
    nvccs = [os.path.join(root, "bin/nvcc") for root in roots]
    return [nvcc for nvcc in dict.fromkeys(nvccs) if os.access(nvcc, os.X_OK)]


def _site_packages():
    return glob.glob(os.path.join(PROJECT, ".venv/lib/python3*/site-packages")) + sys.path


def _wheels():
    """PyPI's wheels share one folder, named for CUDA's major version: the newest first."""
    return [root for folder in _site_packages()
            for root in sorted(glob.glob(f"{folder}/nvidia/cu[0-9][0-9]"), reverse=True)]


def _release(nvcc):
    """((13, 0), "13.0.88"), what nvcc says of itself."""
    match = re.search(r"release (\d+)\.(\d+), V([\d.]+)", output([nvcc, "--version"]))
    if not match:
        raise ToolkitError(f"{nvcc} does not run" if os.path.exists(nvcc) else f"no {nvcc} there")
    return (int(match[1]), int(match[2])), match[3]


def _inspect(nvcc):
    release, version = _release(nvcc)
    if release < OLDEST_RELEASE:
        raise ToolkitError(f"{nvcc} is of CUDA {version}, and 12.0 or later is needed")

    # nvcc itself says where it belongs: it may be a link, or a script that calls the real one.
    settings = output([nvcc, "--dryrun", "-x", "cu", os.devnull])
    top = re.search(r"^#\$ TOP=(.*)$", settings, re.MULTILINE)
    lib_dirs = re.findall(r'"-L([^"]+)"', settings)
    if top:
        lib_dirs += [os.path.join(top[1].strip(), lib) for lib in ("lib64", "lib")]
    if nvcc.startswith(("/usr/bin/", "/usr/lib/")):  # a distribution's own package
        lib_dirs.append(_system_libraries())
    # In NVIDIA's HPC SDK cuBLAS lies in math_libs/12.4, beside cuda/12.4, which is the toolkit.
    top = os.path.realpath(top[1].strip() if top else os.path.join(os.path.dirname(nvcc), ".."))
    math = os.path.normpath(os.path.join(top, "../../math_libs", "{}.{}".format(*release)))
    math_dirs = [os.path.join(math, "lib64")]
    math_dirs += sorted(glob.glob(os.path.join(glob.escape(math), "targets/*/lib")))
    for folder in lib_dirs + math_dirs:
        if _library_files(folder, "cublas") and _library_files(folder, "cublasLt"):
            toolkit = Toolkit(nvcc, version, os.path.realpath(folder))
            if folder in math_dirs:
                own = os.path.join(top, "bin/nvcc")  # the SDK's compilers/bin/nvcc calls this one
                include = os.path.join(os.path.dirname(toolkit.lib_dir), "include")
                toolkit = toolkit._replace(nvcc=own if os.access(own, os.X_OK) else nvcc,
                                           math_include=include)
            if not toolkit.has_header("nvtx3/nvToolsExt.h"):
                raise ToolkitError(f"the toolkit of {nvcc} lacks NVTX's headers")
            return toolkit
    raise ToolkitError(f"the toolkit of {nvcc} lacks cuBLAS")


def _system_libraries():
    return os.path.join("/usr/lib", sysconfig.get_config_var("MULTIARCH") or ".")


def _library_files(folder, name):
    """lib<name>.so first, where it exists, then the versioned names."""
    return sorted(glob.glob(os.path.join(glob.escape(folder), f"lib{name}.so*")), key=len)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--machine"]:
        sys.exit(print(unusable(builds="--builds" in sys.argv)))
    try:
        toolkit = find()
        if sys.argv[1:] == ["--cupti"]:
            print(toolkit.cupti())
        elif sys.argv[1:] == ["--check"]:
            toolkit.check_host_compiler()
        elif sys.argv[1:] == ["--tile"]:
            print(find_tile(toolkit).nvcc)
        else:
            print(toolkit.version if sys.argv[1:] == ["--version"] else toolkit.nvcc)
    except ToolkitError as problem:
        print(problem, file=sys.stderr)
        sys.exit(3)
