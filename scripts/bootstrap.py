# SPDX-License-Identifier: Apache-2.0
"""Prepare a checkout: Java 17 or newer, ``.venv`` and everything in it.

Needs nothing but Python itself. What is there already is left alone, and costs no time worth
noticing: ``python3 scripts/bootstrap.py``, or ``python3 scripts/bootstrap.py docs`` for the extra of
that name, beside what is there. ``python3 scripts/bootstrap.py compiled`` also compiles the engine, if there is
a C compiler.
"""

from __future__ import annotations

import hashlib
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOG = ROOT / "build" / "bootstrap.log"
JAVA = 17
TTY = sys.stderr.isatty()


def main() -> None:
    """Make sure of everything, in the order that fails earliest."""
    if sys.version_info < (3, 10):
        sys.exit(f"statefun needs Python 3.10 or newer; this is {sys.version.split()[0]}")
    ensure_java()
    ensure_installed(
        "dev",
        "Installing statefun and what it needs (half a gigabyte the first time)",
        ["-e", f"{ROOT}[dev]"],
    )
    for extra in sys.argv[1:]:
        if extra == "compiled":
            ensure_compiled()
            continue
        ensure_installed(extra, f"Installing what {extra} needs", [f"statefun[{extra}]"])


def fingerprint() -> str:
    """Identify the Python and the requirements of an installation."""
    content = b"".join((ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt"))
    return f"{sys.version} {hashlib.sha256(content).hexdigest()}"


def java_version() -> int:
    """Return the major version of the Java that Spark would use; 0 if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not (shutil.which(java) or Path(java).exists()):
        return 0
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else 0


def ensure_java() -> None:
    """Install Java through the system's package manager where that is allowed, or say how."""
    if java_version() >= JAVA:
        return
    managers = {
        "apt-get": ["apt-get", "install", "-y", "openjdk-17-jre-headless"],
        "dnf": ["dnf", "install", "-y", "java-17-openjdk-headless"],
        "apk": ["apk", "add", "openjdk17-jre-headless"],
        "pacman": ["pacman", "-S", "--noconfirm", "jre17-openjdk-headless"],
        "brew": ["brew", "install", "openjdk@17"],
    }
    name = next((name for name in managers if shutil.which(name)), None)
    if name is None:
        sys.exit(f"Java {JAVA} or newer is needed; install it and try again")
    command = managers[name]
    as_root = [] if os.geteuid() == 0 or name == "brew" else ["sudo", "-n"]
    allowed = not as_root or (
        shutil.which("sudo") is not None
        and subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode == 0
    )
    if not allowed:
        sys.exit(f"Java {JAVA} or newer is needed; run: sudo {' '.join(command)}")
    if name == "apt-get":
        # Debian and Ubuntu carry one of these, depending on their age.
        watch("Updating the list of packages", [*as_root, "apt-get", "update"])
        known = subprocess.run(
            ["apt-cache", "search", "--names-only", r"^openjdk-(17|21|25)-jre-headless$"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.split()
        packages = sorted(word for word in known if word.startswith("openjdk-"))
        command = [*command[:-1], packages[0] if packages else command[-1]]
    watch(f"Installing Java ({command[-1]})", [*as_root, *command])
    if java_version() < JAVA:
        sys.exit(f"Java {JAVA} or newer is still not found; set JAVA_HOME to it and try again")


def ensure_venv() -> None:
    """Create ``.venv`` with this Python and pip in it, also in place of one with another Python."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not ((VENV / "bin" / "python").exists() and (VENV / "lib" / f"python{version}").exists()):
        try:
            watch("Creating .venv", [sys.executable, "-m", "venv", "--clear", str(VENV)])
        except SystemExit:
            sys.exit(
                "Python's venv module does not work here; on Debian and Ubuntu run: "
                f"sudo apt-get install -y python{version}-venv"
            )


def ensure_installed(extra: str, title: str, what: list[str]) -> None:
    """Install an extra of the project into ``.venv``, at the versions that are tested."""
    stamp, wanted = VENV / f".statefun-{extra}", fingerprint()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    ensure_venv()
    watch(
        title,
        [
            *(str(VENV / "bin" / "python"), "-m", "pip", "install", "--progress-bar", "off"),
            *("--disable-pip-version-check", "-c", str(ROOT / "constraints.txt")),
            *what,
        ],
    )
    stamp.write_text(wanted)


def ensure_compiled() -> None:
    """Compile the engine, unless that is done, has failed before, or there is no C compiler.

    Without it, the engine runs in Python.
    """
    facts = runpy.run_path(str(ROOT / "statefun" / "compilation.py"))
    folder: Path = facts["compiled_folder"](ROOT)
    failed = folder.with_suffix(".failed")
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if folder.is_dir() or failed.exists():
        return
    if shutil.which(compiler) is None:
        LOG.parent.mkdir(exist_ok=True)
        with LOG.open("a") as log:
            log.write(f"There is no C compiler {compiler}, so the engine runs in Python\n")
        return
    try:
        command = [str(VENV / "bin" / "python"), str(ROOT / "scripts" / "compile_engine.py")]
        watch("Compiling the engine", command)
    except SystemExit as error:
        print(f"{error}; the engine runs in Python", file=sys.stderr)
        failed.parent.mkdir(parents=True, exist_ok=True)
        failed.touch()


def watch(title: str, command: list[str]) -> None:
    """Run a command, show its last line of output on one line of the terminal, and log it all."""
    LOG.parent.mkdir(exist_ok=True)
    began = time.monotonic()
    if not TTY:
        print(f"{title} ...", file=sys.stderr, flush=True)
    with (
        LOG.open("a") as log,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process,
    ):
        last: list[str] = []
        for line in process.stdout or ():
            log.write(line)
            last = [*last[-9:], line.rstrip()]
            if TTY:
                width = shutil.get_terminal_size().columns
                status = f"{title}: {time.monotonic() - began:.0f} s: {line.strip()}"
                print(f"\r\x1b[2K{status[: width - 1]}", end="", file=sys.stderr, flush=True)
    seconds = f"{time.monotonic() - began:.0f} s"
    print(f"{chr(13) + chr(27) + '[2K' if TTY else ''}{title}: {seconds}", file=sys.stderr)
    if process.returncode != 0:
        print("\n".join(last), file=sys.stderr)
        sys.exit(f"{title} failed: {' '.join(command)} (all of its output: {LOG})")


if __name__ == "__main__":
    main()
