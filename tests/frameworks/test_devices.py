import pytest

from helpers.errors import UserError
from helpers.frameworks import cpu_cores, devices
from helpers.frameworks.capabilities import Gpu
from helpers.frameworks.cpu_cores import SHARED


def with_gpus(monkeypatch: pytest.MonkeyPatch, *names: str, cores: int = 8) -> None:
    monkeypatch.setattr(devices, "visible", lambda: [Gpu(name) for name in names])
    monkeypatch.setattr(cpu_cores, "machine", lambda: [(number,) for number in range(cores)])


def test_auto_takes_every_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, "V100", "V100", "V100", "V100")
    found = devices.resolve("auto")
    assert (found.kind, found.count, found.short) == ("gpu", 4, "4 GPUs")


@pytest.mark.parametrize(("cores", "most"), [(1, 12), (2, 12), (16, 64)])
def test_too_many_devices_that_share_cores_are_refused(
    cores: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 on two cores were accepted, and trained on for hours."""
    with_gpus(monkeypatch)
    monkeypatch.setattr(devices, "core_count", lambda: cores)
    assert devices.resolve(most, SHARED).count == most
    with pytest.raises(UserError, match=f"share {cores} cores; give {most} at most$"):
        devices.resolve(most + 1, SHARED)


@pytest.mark.parametrize(
    ("capabilities", "precision"),
    [([(8, 0), (9, 0)], "tf32"), ([(7, 0), (8, 0)], "fp32"), ([None], "fp32"), ([], "fp32")],
)
def test_auto_computes_in_tf32_where_every_gpu_has_it(
    capabilities: list[tuple[int, int] | None], precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "visible", lambda: [Gpu("A", each) for each in capabilities])
    assert (devices.precision("auto"), devices.precision("bf16")) == (precision, "bf16")


@pytest.mark.parametrize(("cores", "count", "each"), [(1, 1, 1), (2, 2, 1), (8, 2, 4)])
def test_auto_without_a_gpu_is_two_devices_with_cores_of_their_own(
    cores: int, count: int, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or one, where there is only one core."""
    with_gpus(monkeypatch, cores=cores)
    found = devices.resolve("auto")
    assert (found.kind, found.count) == ("cpu", count)
    assert [cpu.threads for cpu in found.cpus] == [each] * count
    assert "not ranked" not in str(found)


def test_devices_that_share_cores_say_that_they_are_not_ranked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_gpus(monkeypatch, cores=2)
    with pytest.raises(UserError, match=r"give 2 at most\. With cores_per_device 'shared'"):
        devices.resolve(3)
    found = devices.resolve(3, SHARED)
    assert not found.cpus and "not ranked" in str(found)


def test_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, "A100", "A100")
    assert devices.resolve("1").names == ("A100",)
    told = r"^devices 3: this process sees 2 GPU\(s\); give 2 at most"
    with pytest.raises(UserError, match=told):
        devices.resolve(3)
    with_gpus(monkeypatch)
    assert devices.resolve(8).count == 8


@pytest.mark.parametrize("wrong", ["two", 0, -1, "1.5", 1.5, True])
def test_wrong_numbers(wrong: object) -> None:
    with pytest.raises(UserError, match="devices"):
        devices.resolve(wrong)  # type: ignore[arg-type]


def test_hardware_describes_this_machine() -> None:
    found = devices.hardware()
    assert found["cores"] >= 1 and found["memory_bytes"] > 2**28 and found["cpu"]
