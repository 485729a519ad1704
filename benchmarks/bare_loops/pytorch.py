"""Train with plain PyTorch: torchvision's model in eager mode, and Adam with its defaults."""

from collections.abc import Callable

import torch
from torchvision.models import densenet121

OPTIONS: dict[str, dict[str, object]] = {
    "as it comes": {},
    "fused Adam": {"fused": True},
    "channels-last": {"channels_last": True},
    "fused Adam, channels-last": {"fused": True, "channels_last": True},
    "fused Adam, bf16": {"fused": True, "cast": torch.bfloat16},
    "fused Adam, channels-last, bf16": {
        "fused": True,
        "channels_last": True,
        "cast": torch.bfloat16,
    },
}
SLOW: dict[str, dict[str, object]] = {
    "fused Adam, channels-last, torch.compile": {
        "fused": True,
        "channels_last": True,
        "compiled": True,
    },
}
"""Takes minutes to begin, or for a step; only asked for."""
# A core computes in float16 many times slower than in float32.
(OPTIONS if torch.cuda.is_available() else SLOW)["fused Adam, channels-last, fp16"] = {
    "fused": True,
    "channels_last": True,
    "cast": torch.float16,
}


def make(
    pixels: int,
    batch: int,
    *,
    fused: bool | None = None,
    channels_last: bool = False,
    cast: torch.dtype | None = None,
    compiled: bool = False,
    wrap: Callable[[torch.nn.Module], torch.nn.Module] = lambda model: model,
) -> Callable[[int], None]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    layout = torch.channels_last if channels_last else torch.contiguous_format
    torch.manual_seed(0)
    model = densenet121(num_classes=14).to(device, memory_format=layout)
    if compiled:
        model.compile()
    model = wrap(model)
    criterion = torch.nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=fused)
    images = torch.randn(batch, 3, pixels, pixels, device=device).contiguous(memory_format=layout)
    targets = torch.zeros(batch, 14, device=device)

    def take(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            with torch.autocast(device.type, cast, enabled=cast is not None):
                loss = criterion(model(images), targets)
            loss.backward()
            optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return take
