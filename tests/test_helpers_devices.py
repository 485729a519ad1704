import pytest

from helpers import devices
from helpers.capabilities import Gpu
from helpers.errors import UserError


def with_gpus(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(devices, "visible", lambda: [Gpu(name) for name in names])


def test_auto_takes_every_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, "V100", "V100", "V100", "V100")
    found = devices.resolve("auto")
    assert (found.kind, found.count, found.short) == ("gpu", 4, "4 GPUs")


def test_auto_without_a_gpu_is_two_virtual_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch)
    found = devices.resolve("auto")
    assert (found.kind, found.count) == ("cpu", 2)
    assert "not how fast" in str(found)


def test_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, "A100", "A100")
    assert devices.resolve("1").names == ("A100",)
    with pytest.raises(UserError, match="sees 2 GPU"):
        devices.resolve(3)
    with_gpus(monkeypatch)
    assert devices.resolve(8).count == 8


@pytest.mark.parametrize("wrong", ["two", 0, -1, "1.5"])
def test_wrong_numbers(wrong: object) -> None:
    with pytest.raises(UserError, match="devices"):
        devices.resolve(wrong)  # type: ignore[arg-type]


def test_hardware_describes_this_machine() -> None:
    found = devices.hardware()
    assert found["cores"] >= 1 and found["memory_bytes"] > 2**28 and found["cpu"]
