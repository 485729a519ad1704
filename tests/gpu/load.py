"""Something for the monitor to see: convolutions, on the first GPU where there is one."""

import sys
import time

import torch

import gpumon

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
size = 4096 if device.type == "cuda" else 64
layer = torch.nn.Conv2d(3, 64, 7, stride=2, padding=3).to(device)
images = torch.randn(size // 16, 3, 224, 224, device=device)

for number in range(2):
    end, done = time.monotonic() + float(sys.argv[1]) / 2, 0
    with gpumon.phase("train", epoch=number + 1):
        while time.monotonic() < end:
            layer(images).sum().backward()
            if device.type == "cuda":
                torch.cuda.synchronize()
            done += len(images)
    with gpumon.phase("idle"):
        time.sleep(1)
    print(f"{device}: {done} images")
