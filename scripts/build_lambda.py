"""Build the Lambda package: locked dependencies, src/bridge, src/handler and the exec wrapper, in one folder.

Wheels only, so any host builds for Lambda's Linux without Docker. `--host` builds the same package for the
interpreter that runs this script, for the emulator tests. Standard library only: `sam build` runs it too.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAMBDA_PYTHON = "3.14"  # the runtime of template.yaml
PLATFORMS = {"arm64": "aarch64-manylinux_2_28", "x86_64": "x86_64-manylinux_2_28"}
PACKAGES = ("bridge", "handler")
WRAPPER = "exec_wrapper"
PROBE = "import sys; v = sys.version_info; print(sys.implementation.name, f'{v[0]}.{v[1]}', v.releaselevel)"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to build for, and the interpreter that can compile it, if there is one."""

    label: str
    version: str
    uv_flags: tuple[str, ...]
    compiler: str | None


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    uv = find_uv()
    plan = plan_host(args.python) if args.host else plan_lambda(uv, args.arch, args.python_version, args.python)
    target = args.target.resolve()
    clear(target)
    install(uv, target, plan, "lambda-tools.lock" if args.with_tools else "lambda.lock")
    if args.with_tracing:
        install(uv, target, plan, "lambda-tracing.lock", "--no-deps")  # botocore is the runtime's
    copy_sources(target)
    prune(target)
    print(f"Package: {plan.label}, Python {plan.version}")
    print(f"Bytecode: {compile_bytecode(target, plan)}")
    print(f"Unzipped size: {size(target) / 1e6:.1f} MB")


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Build the Lambda package into a folder.")
    parser.add_argument(
        "--target", type=Path, required=True, help="folder to fill; an earlier package in it is replaced"
    )
    parser.add_argument("--arch", choices=PLATFORMS, default="arm64", help="Lambda architecture (default: arm64)")
    parser.add_argument("--host", action="store_true", help="build for this machine and interpreter instead of Lambda")
    parser.add_argument("--python", help="interpreter that compiles the .pyc files (default: looked for)")
    parser.add_argument("--python-version", default=LAMBDA_PYTHON, help=f"Lambda's Python (default: {LAMBDA_PYTHON})")
    parser.add_argument("--with-tools", action="store_true", help="add what web_fetch and MCP servers need")
    parser.add_argument("--with-tracing", action="store_true", help="add what TRACING=on needs")
    return parser.parse_args(argv)


def find_uv() -> str:
    local = ROOT / ".tools/uv/bin/uv"
    found = str(local) if local.exists() else shutil.which("uv")
    return found or sys.exit("build_lambda: uv is missing; `make build` brings it")


def plan_host(python: str | None) -> Plan:
    python = python or sys.executable
    version = probe(python)
    if version is None:
        sys.exit(f"build_lambda: {python} is not a released CPython")
    return Plan("this host", version, ("--python", python), python)


def plan_lambda(uv: str, arch: str, version: str, python: str | None) -> Plan:
    if python and probe(python) != version:
        sys.exit(f"build_lambda: {python} is not a released CPython {version}, its .pyc files would be ignored")
    flags = ("--python-platform", PLATFORMS[arch], "--python-version", version)
    return Plan(f"Lambda {arch}", version, flags, python or find_compiler(uv, version))


def find_compiler(uv: str, version: str) -> str | None:
    """An installed CPython of Lambda's minor version: only its bytecode has the right magic number."""
    command = [uv, "python", "find", "--no-python-downloads", "--no-project", version]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return found if found and probe(found) == version else None


def probe(python: str) -> str | None:
    answer = subprocess.run([python, "-I", "-c", PROBE], capture_output=True, text=True, check=False).stdout.split()
    match answer:
        case ["cpython", version, "final"]:
            return version
        case _:
            return None


def clear(target: Path) -> None:
    if target.exists() and any(target.iterdir()):
        if not (target / WRAPPER).exists():
            sys.exit(f"build_lambda: {target} is neither empty nor an earlier package; not touching it")
        shutil.rmtree(target)
    target.mkdir(parents=True, exist_ok=True)


def install(uv: str, target: Path, plan: Plan, lock: str, *options: str) -> None:
    command = [uv, "pip", "install", "--quiet", "--no-python-downloads", "--link-mode", "copy", *options]
    locked = ["--only-binary", ":all:", "--require-hashes", "--requirement", str(ROOT / "requirements" / lock)]
    subprocess.run([*command, *plan.uv_flags, *locked, "--target", str(target)], check=True)


def copy_sources(target: Path) -> None:
    for name in PACKAGES:
        shutil.copytree(ROOT / "src" / name, target / name, ignore=shutil.ignore_patterns("__pycache__", WRAPPER))
    wrapper = target / WRAPPER
    shutil.copyfile(ROOT / "src/handler" / WRAPPER, wrapper)
    wrapper.chmod(0o755)


def prune(target: Path) -> None:
    """Drop what only an installer reads. Metadata and licences stay."""
    shutil.rmtree(target / "bin", ignore_errors=True)
    (target / ".lock").unlink(missing_ok=True)
    for name in ("RECORD", "INSTALLER", "REQUESTED"):
        for path in target.glob(f"*.dist-info/{name}"):
            path.unlink()


def compile_bytecode(target: Path, plan: Plan) -> str:
    if plan.compiler is None:
        return (
            f"none, because no CPython {plan.version} was found here; Lambda compiles at each cold start. "
            f"`.tools/uv/bin/uv python install {plan.version}` or `make build LAMBDA_PYTHON=…` changes that"
        )
    # unchecked-hash: zip rounds modification times, and a check would read every source anyway.
    # -s/-p: the paths in the bytecode are Lambda's, not this machine's.
    options = [
        "-q",
        "-f",
        "-j",
        "0",
        "--invalidation-mode",
        "unchecked-hash",
        "-s",
        str(target),
        "-p",
        "/var/task",
    ]
    subprocess.run([plan.compiler, "-I", "-m", "compileall", *options, str(target)], check=True)
    return f"{sum(1 for _ in target.rglob('*.pyc'))} .pyc files, unchecked-hash"


def size(target: Path) -> int:
    return sum(path.stat().st_size for path in target.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
