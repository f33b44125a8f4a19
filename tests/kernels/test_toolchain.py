"""The kernels under other tools than a user's: sanitizers, and an emulated processor. Minutes; left out by default.

    pytest -m toolchain

needs g++ with its sanitizers, cmake, g++-aarch64-linux-gnu and qemu-aarch64 (Debian: g++-aarch64-linux-gnu, qemu-user).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.toolchain


def build(folder: Path, target: str, *definitions: str) -> Path:
    """Configure and build a target of CMakeLists.txt; the folder with what was built."""
    steps = (["cmake", "-S", str(ROOT), "-B", str(folder), *definitions], ["cmake", "--build", str(folder), "--target", target])
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_this_processors_instruction_sets_are_as_plain_cpp(tmp_path: Path) -> None:
    build(tmp_path, "compare_variants", "-DMAPLE_COMPARE=ON")
    assert "is as plain" in run(str(tmp_path / "compare_variants"))


def test_neon_is_as_plain_cpp_on_an_emulated_processor(tmp_path: Path) -> None:
    cross = ("-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64", "-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++")
    build(tmp_path, "compare_variants", "-DMAPLE_COMPARE=ON", *cross)
    assert run("qemu-aarch64", "-cpu", "max", str(tmp_path / "compare_variants")) == "neon is as plain\n"


def test_no_kernel_reads_or_writes_where_it_must_not(tmp_path: Path) -> None:
    """The tests of the kernels and of the forward pass again, with a library that stops at the first such access."""
    build(tmp_path, "maple_kernels", "-DMAPLE_SANITIZE=ON")
    (sanitizer,) = run("g++", "-print-file-name=libasan.so").split()
    said = run(
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/kernels", "tests/model/test_native.py"),
        TEST_LIBRARY=str(tmp_path / "libmaple_kernels.so"),
        LD_PRELOAD=sanitizer,
        ASAN_OPTIONS="detect_leaks=0",  # Python frees nothing at its end
        OMP_WAIT_POLICY="passive",
    )
    assert " passed" in said
