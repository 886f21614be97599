"""What a reader must know about the machine to judge the figures; no path, no host name."""

import os
import platform
import shutil
from pathlib import Path

from systems import System, registry, version


def machine_facts(directory: Path) -> dict[str, str]:
    return {
        "CPU": f"{cpu_model()}, {os.cpu_count()} cores",
        "memory": f"{memory_gb():.0f} GB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": file_system_type(directory),
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "load at start": f"{os.getloadavg()[0]:.2f}",
    }


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return platform.machine()


def memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def file_system_type(directory: Path) -> str:
    """The type of the mount with the longest matching path."""
    best, kind = "", "unknown"
    place = directory.resolve()
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        mount_point = fields[4]
        if place.is_relative_to(mount_point) and len(mount_point) >= len(best):
            best, kind = mount_point, fields[fields.index("-") + 1]
    return kind


def free_gb(directory: Path) -> float:
    return shutil.disk_usage(directory).free / 1e9


def installed_systems() -> tuple[dict[str, type[System]], dict[str, str], list[str]]:
    """The systems that can run, their versions, and the names of those that are missing."""
    systems, versions, missing = {}, {}, []
    for key, system in registry().items():
        found = version(system)
        if found is None:
            missing.append(f"{system.name} (package {system.package})")
        else:
            systems[key], versions[key] = system, found
    return systems, versions, missing
