import re

import pytest

from helpers.errors import UserError
from helpers.frameworks import cpu_cores, devices
from helpers.frameworks.capabilities import Gpu
from helpers.frameworks.cpu_cores import SHARED


def with_gpus(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(devices, "visible", lambda: [Gpu(name) for name in names])


def test_auto_takes_every_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, "V100", "V100", "V100", "V100")
    found = devices.resolve("auto")
    assert (found.kind, found.count, found.short) == ("gpu", 4, "4 GPUs")


@pytest.mark.parametrize(("cores", "most"), [(1, 12), (2, 12), (16, 64)])
def test_more_devices_that_share_cores_are_warned_of_and_many_more_refused(
    cores: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 on two cores were accepted, and trained on for hours."""
    monkeypatch.setattr(devices, "core_count", lambda: cores)
    said = f"; warning: {most} CPU devices share {cores} cores, so each step takes long; give"
    assert said in str(devices.resolve(most, 0, SHARED))
    assert "warning" not in str(devices.resolve(cores, 0, SHARED))
    with pytest.raises(UserError, match=f"share {cores} cores; give {most} at most$"):
        devices.resolve(most + 1, 0, SHARED)


def with_cores(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    machine = [cpu_cores.Core(0, (number,)) for number in range(count)]
    monkeypatch.setattr(cpu_cores, "machine", lambda: machine)


@pytest.mark.parametrize(("cores", "count", "each"), [(1, 1, 1), (2, 2, 1), (8, 2, 4)])
def test_auto_without_a_gpu_is_two_devices_with_cores_of_their_own(
    cores: int, count: int, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or one, where there is only one core."""
    with_gpus(monkeypatch)
    with_cores(monkeypatch, cores)
    found = devices.resolve("auto")
    assert (found.kind, found.count) == ("cpu", count)
    assert [cpu.threads for cpu in found.cpus] == [each] * count
    assert "not ranked" not in str(found)


def test_devices_that_share_cores_say_that_they_are_not_ranked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_gpus(monkeypatch)
    with_cores(monkeypatch, 2)
    with pytest.raises(UserError, match=r"give 2 at most\. With cores_per_device 'shared'"):
        devices.resolve(3)
    found = devices.resolve(3, "auto", SHARED)
    assert not found.cpus and "not ranked" in str(found)


@pytest.mark.parametrize("wrong", ["many", 0, 1.5])
def test_wrong_numbers_of_cores(wrong: object, monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch)
    with pytest.raises(UserError, match="cores_per_device "):
        devices.resolve(1, "auto", wrong)  # type: ignore[arg-type]


def test_a_wrong_place_for_loaders(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch)
    with pytest.raises(UserError, match="loader_cores 'gpu': give device, own, siblings"):
        devices.resolve(1, "auto", "auto", "gpu")


def test_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, "A100", "A100")
    assert devices.resolve("1").names == ("A100",)
    with pytest.raises(UserError, match="sees 2 GPU"):
        devices.resolve(3)
    with_gpus(monkeypatch)
    with_cores(monkeypatch, 8)
    assert devices.resolve(8).count == 8


@pytest.mark.parametrize("wrong", ["two", 0, -1, "1.5", 1.5, True])
def test_wrong_numbers(wrong: object) -> None:
    with pytest.raises(UserError, match="devices"):
        devices.resolve(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "gpus", "names", "shared", "short"),
    [
        (4, 1, ("A",) * 4, 1, "4 replicas on 1 GPU"),
        ("4", "2", ("A", "B", "A", "B"), 2, "4 replicas on 2 GPUs"),
        (2, 2, ("A", "B"), None, "2 GPUs"),
        ("auto", 1, ("A",), None, "1 GPU"),
        (1, None, ("A",), None, "1 GPU"),
    ],
)
def test_replicas_are_dealt_out_to_the_gpus(
    monkeypatch: pytest.MonkeyPatch,
    count: int | str,
    gpus: int | str | None,
    names: tuple[str, ...],
    shared: int | None,
    short: str,
) -> None:
    with_gpus(monkeypatch, "A", "B")
    found = devices.resolve(count, gpus)
    assert (found.kind, found.names, found.shared_gpus) == ("gpu", names, shared)
    assert found.short == short and found.gpus == len(set(names))
    assert ("not ranked" in str(found)) is bool(shared)


@pytest.mark.parametrize(
    ("there", "count", "gpus", "said"),
    [
        (0, 4, 1, "gpus 1: this process sees no GPU; leave gpus out"),
        (2, 4, 3, "gpus 3: this process sees 2 GPU(s); give 2, or leave gpus out"),
        (3, 4, 3, "devices 4: cannot be spread evenly over gpus 3; give a multiple of 3"),
        (2, 1, 2, "devices 1: cannot be spread evenly over gpus 2; give a multiple of 2"),
        (2, 2050, 2, "devices 2050: at most 1024 replicas may share a GPU"),
        (2, 4, "one", "gpus 'one': give a number, or auto"),
        (2, 4, -1, "gpus -1: give 0 or more"),
        (2, 4, 0.5, "gpus '0.5': give a number, or auto"),
        (2, 4, "auto", "devices 4: this process sees 2 GPU(s); ask for fewer, for gpus 2 to let"),
    ],
)
def test_gpus_that_cannot_be_had(
    monkeypatch: pytest.MonkeyPatch, there: int, count: int, gpus: int | str, said: str
) -> None:
    with_gpus(monkeypatch, *"ABC"[:there])
    with pytest.raises(UserError, match=f"^{re.escape(said)}"):
        devices.resolve(count, gpus)


def test_gpus_0_is_the_cpu_whatever_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, "A", "B", "C")
    with_cores(monkeypatch, 4)
    assert devices.resolve("auto", 0).short == "2 CPU devices"
    found = devices.resolve(4, 0)
    assert (found.kind, found.gpus, found.shared_gpus) == ("cpu", 0, None)
    assert devices.used(4, 0) == [] and len(devices.used(3)) == 3 and len(devices.used(4, 1)) == 1


def test_hardware_describes_this_machine() -> None:
    found = devices.hardware()
    assert found["cores"] >= 1 and found["memory_bytes"] > 2**28 and found["cpu"]
