"""The tests under the arithmetic of several processors: ``python -m tests.tools.blas_settings``.

Linear algebra (OpenBLAS in NumPy and SciPy), NumPy and torch choose their kernels by the processor,
and each kernel rounds in its own way. A test that passes with one kernel and fails with another
depends on rounding. Each setting asks the libraries for the kernels of one processor. Arguments
other than those below go to pytest.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

LOGS = Path("build/blas")
AVX512 = [name for name in __cpu_dispatch__ if "AVX512" in name or name == "X86_V4"]


class Setting(NamedTuple):
    """The kernels of one processor, and what a processor must have to run them.

    torch's products of matrices are MKL's, which obeys ``MKL_CBWR`` alone on a processor that is
    not Intel's; its convolutions are oneDNN's.
    """

    cores: set[str]  # what OpenBLAS calls the kernels
    needs: tuple[str, ...]
    without: list[str]
    torch: dict[str, str]


# OpenBLAS as NumPy and SciPy build it runs Haswell's kernels for Zen: there the two settings differ
# in NumPy and torch alone.
SETTINGS = {
    "Prescott": Setting(
        {"Prescott", "Katmai"},
        (),
        __cpu_dispatch__,
        {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    ),
    "Sandybridge": Setting(
        {"Sandybridge"},
        ("AVX",),
        __cpu_dispatch__,
        {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"},
    ),
    "Haswell": Setting(
        {"Haswell"},
        ("AVX2", "FMA3"),
        AVX512,
        {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    ),
    "SkylakeX": Setting({"SkylakeX"}, ("AVX512_SKX",), [], {}),
    "Zen": Setting({"Zen", "Haswell"}, ("AVX2", "FMA3"), [], {}),
}

# Prints which kernels are taken, and with how many threads.
KERNELS = """
import numpy, scipy.linalg
from importlib.util import find_spec
from threadpoolctl import threadpool_info
pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
told = "/".join(f"{pool['architecture']}x{pool['num_threads']}" for pool in pools)
if find_spec("torch"):
    import torch
    told += f", torch {torch.backends.cpu.get_cpu_capability()}x{torch.get_num_threads()}"
print(told)
"""


def environment(name: str, n_threads: int) -> dict[str, str]:
    """Return the variables of a setting, beside those of this process."""
    setting = SETTINGS[name]
    threads = dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(n_threads)
    )
    disabled = {"NPY_DISABLE_CPU_FEATURES": " ".join(setting.without)} if setting.without else {}
    return {**os.environ, "OPENBLAS_CORETYPE": name, **threads, **disabled, **setting.torch}


def is_runnable(name: str) -> bool:
    """Return whether this processor has the instructions of a setting."""
    return all(__cpu_features__.get(feature, False) for feature in SETTINGS[name].needs)


def run_tests(name: str, n_threads: int, arguments: list[str]) -> bool:
    """Run pytest under a setting, print one line and the failures; return whether it is green."""
    title = f"{name}, {n_threads} thread{'s' * (n_threads > 1)}"
    variables = environment(name, n_threads)
    kernels = subprocess.run(
        [sys.executable, "-c", KERNELS], env=variables, check=True, capture_output=True, text=True
    ).stdout.strip()
    taken = set(re.findall(r"(\w+)x\d+", kernels.partition(",")[0]))
    if not taken or not taken <= SETTINGS[name].cores:
        sys.exit(f"OPENBLAS_CORETYPE={name} is not obeyed: the kernels are {kernels}.")
    log, begun = LOGS / f"{name}_{n_threads}.log", time.monotonic()
    with log.open("w") as out:
        command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-rfE", *arguments]
        code = subprocess.run(command, env=variables, stdout=out, stderr=out).returncode
    lines = log.read_text().splitlines()
    summary = re.sub(r" in [\d.]+s.*", "", lines[-1]) if lines else f"pytest ended with {code}"
    print(f"{title} ({kernels}): {summary} in {time.monotonic() - begun:.0f} s", flush=True)
    for line in lines:
        if line.startswith(("FAILED ", "ERROR ")):
            print(f"    {line}", flush=True)
    return code == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    chosen, arguments = parser.parse_known_args()
    LOGS.mkdir(parents=True, exist_ok=True)
    green = True
    for name in chosen.settings:
        if not is_runnable(name):
            print(f"{name}: not run, this processor lacks {', '.join(SETTINGS[name].needs)}")
            continue
        for n_threads in chosen.threads:
            green &= run_tests(name, n_threads, arguments)
    return 0 if green else 1


if __name__ == "__main__":
    sys.exit(main())
