"""The build script makes a package that Lambda can run, for the host and both Lambda architectures."""

from __future__ import annotations

import importlib.util
import json
import os
import stat
import struct
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/build_lambda.py"
MACHINES = {"arm64": 183, "x86_64": 62}  # ELF e_machine
UNCHECKED_HASH = 0b01
DEPENDENCIES = "pydantic, httpx2, orjson, aws_lambda_powertools"
BUDGET = 40_000_000
PROBE = """
import json, os, sys
flags = sys.flags
print(json.dumps([sys.argv[1:], os.environ["PYTHONPATH"], flags.safe_path, flags.dont_write_bytecode]))
"""


def build(target: Path, *options: str) -> str:
    command = [sys.executable, str(SCRIPT), "--target", str(target), *options]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def run_python(package: Path, code: str) -> str:
    """Run code with nothing but the package and the standard library on the path."""
    environment = {"PYTHONPATH": str(package)}
    command = [sys.executable, "-P", "-B", "-S", "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_the_package_imports_by_itself(host_package: Path) -> None:
    printed = run_python(host_package, f"import {DEPENDENCIES}, bridge, handler; print(bridge.__file__)")
    assert Path(printed.strip()).parent == host_package / "bridge"


def test_it_holds_neither_local_tools_nor_what_the_runtime_brings(host_package: Path) -> None:
    unwanted = ("scripted", "uvicorn", "boto3", "botocore", "tests", "bin", ".lock")
    assert [name for name in unwanted if (host_package / name).exists()] == []
    assert list(host_package.glob("*.dist-info/RECORD")) == []


def test_licences_are_kept(host_package: Path) -> None:
    without = [d.name for d in host_package.glob("*.dist-info") if not list(d.rglob("*LICEN[CS]E*"))]
    assert without == []


def test_the_wrapper_is_executable_and_only_at_the_root(host_package: Path) -> None:
    assert stat.S_IMODE((host_package / "exec_wrapper").stat().st_mode) == 0o755
    assert not (host_package / "handler/exec_wrapper").exists()


def test_the_wrapper_replaces_the_runtime_by_our_module(tmp_path: Path) -> None:
    (tmp_path / "handler").mkdir()
    (tmp_path / "handler/lambda_runtime.py").write_text(PROBE, "utf-8")
    interpreter = tmp_path / "python3.14"
    interpreter.symlink_to(sys.executable)
    environment = os.environ | {
        "LAMBDA_TASK_ROOT": str(tmp_path),
        "LAMBDA_RUNTIME_DIR": "/runtime",
        "PYTHONPATH": "/x",
    }
    command = [str(ROOT / "src/handler/exec_wrapper"), str(interpreter), "/var/runtime/bootstrap.py"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    arguments, path, safe_path, no_bytecode = json.loads(run.stdout)
    assert arguments == []
    assert path.split(":") == [
        str(tmp_path),
        "/opt/python/lib/python3.14/site-packages",
        "/opt/python",
        "/runtime",
    ]
    assert safe_path
    assert no_bytecode


def test_bytecode_fits_the_interpreter_and_is_never_checked(host_package: Path) -> None:
    files = list(host_package.rglob("*.pyc"))
    assert len(files) == len(list(host_package.rglob("*.py")))
    for path in files:
        magic, flags = struct.unpack("<4sI", path.read_bytes()[:8])
        assert (magic, flags) == (importlib.util.MAGIC_NUMBER, UNCHECKED_HASH), path


def test_bytecode_names_no_path_of_the_build_machine(host_package: Path) -> None:
    named = [path for path in host_package.rglob("*.pyc") if str(host_package).encode() in path.read_bytes()]
    assert named == []


def test_building_again_replaces_the_package(tmp_path: Path) -> None:
    build(tmp_path, "--host")
    (tmp_path / "left_over.py").touch()
    build(tmp_path, "--host")
    assert not (tmp_path / "left_over.py").exists()


def test_an_unknown_architecture_stops_make_before_anything_is_replaced() -> None:
    done = ["-o", ".tools/sam/.ready", "-o", ".tools/uv/bin/uv"]
    command = ["make", "--no-print-directory", *done, "build", "ARCH=bogus"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "ARCH takes arm64 or x86_64, not 'bogus'" in run.stderr
    assert run.stdout == ""


def test_a_foreign_folder_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").touch()
    command = [sys.executable, str(SCRIPT), "--target", str(tmp_path), "--host"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "not touching it" in run.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("arch", MACHINES)
def test_a_package_for_lambda_holds_its_machine_code(tmp_path: Path, arch: str) -> None:
    printed = build(tmp_path, "--arch", arch)
    extensions = list(tmp_path.rglob("*.so"))
    assert {path.name.split(".")[0] for path in extensions} >= {"_pydantic_core", "orjson"}
    for path in extensions:
        header = path.read_bytes()[:20]
        assert header[:4] == b"\x7fELF"
        assert struct.unpack_from("<H", header, 18) == (MACHINES[arch],)
        assert ".cpython-314-" in path.name or ".abi3." in path.name
    assert bool(list(tmp_path.rglob("*.pyc"))) == ("Bytecode: none, because" not in printed)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < BUDGET


def test_an_interpreter_of_another_version_may_not_compile(tmp_path: Path) -> None:
    other = "3.15" if sys.version_info[:2] == (3, 14) else "3.14"
    options = ["--python", sys.executable, "--python-version", other]
    command = [sys.executable, str(SCRIPT), "--target", str(tmp_path), *options]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "would be ignored" in run.stderr


def test_make_build_hands_the_architecture_to_sam_and_the_script() -> None:
    # Overrides of an outer make would win over the ARCH given here.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--dry-run", "ARCH=x86_64", "ARTIFACTS_DIR=out", "build", "build-BridgeFunction"]
    printed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    assert "sam build --parameter-overrides Architecture=x86_64" in printed
    assert '--target "out" --arch x86_64' in printed
