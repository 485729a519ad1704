"""Distinguish the machines of runs by their hardware.

Hosts with equal hardware count as one machine, such as the nodes of a cluster, or a container whose
name changes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Key = tuple[str, int]
"""The CPU and its logical cores. GPUs are known from the devices of a run."""


def key(content: Mapping[str, Any]) -> Key | None:
    """What distinguishes a run's machine from others; None if the run ended too early to know."""
    hardware = content.get("hardware")
    return None if hardware is None else (hardware["cpu"], hardware["cores"])


def models(devices: Mapping[str, Any]) -> str:
    """The models of a run's devices, each once: ``NVIDIA A100, NVIDIA H100``."""
    return ", ".join(dict.fromkeys(devices["names"]))


def cores_per_device(content: Mapping[str, Any]) -> str:
    """``2`` physical cores that compute; ``1 and 2`` where its CPU devices differ.

    Nothing if no device has its own cores.
    """
    threads = {cpu["threads"] for cpu in content["devices"].get("cpus", [])}
    return " and ".join(map(str, sorted(threads)))


def names(contents: Sequence[Mapping[str, Any]]) -> list[str]:
    """``box``: each run's machine, named by its host; nothing for runs that know none.

    With several hosts, the first gives the name; if two machines have the same, the CPU is added.
    """
    hosts: dict[Key, str] = {}
    keys = [key(content) for content in contents]
    for found, content in zip(keys, contents, strict=True):
        if found is not None:
            hosts.setdefault(found, str(content["run"]["host"]))
    taken = list(hosts.values())
    said = {
        found: host if taken.count(host) == 1 else f"{host} ({found[0]}, {found[1]} logical cores)"
        for found, host in hosts.items()
    }
    return ["" if found is None else said[found] for found in keys]
