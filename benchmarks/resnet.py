# SPDX-License-Identifier: Apache-2.0
"""ResNet-18 for small images (He et al. 2016: 3 × 3 stem without pooling, four stages of two blocks), with batch
normalisation, and with all but its last layer frozen. 11.2 million parameters at width 64.

PYTHONPATH=src python -m pens bench --model benchmarks/resnet.py:resnet18 --shape 3,32,32 --peers 20 --samples 16
"""

from __future__ import annotations

import itertools

from torch import Tensor, nn


class Block(nn.Module):
    """Two convolutions and a skip connection."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.skip = nn.Sequential()
        if stride > 1 or channels != out:
            self.skip = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        added: Tensor = hidden + self.skip(x)
        return added.relu()


class ResNet18(nn.Module):
    """images [batch, 3, height, width] → scores [batch, class]"""

    def __init__(self, width: int = 64, num_classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        self.stages = nn.Sequential(
            *(
                nn.Sequential(Block(a, b, 1 if i == 0 else 2), Block(b, b, 1))
                for i, (a, b) in enumerate(itertools.pairwise(widths))
            )
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.pool(self.stages(self.stem(x))).flatten(1))
        return logits


def resnet18() -> nn.Module:
    """All parameters train."""
    return ResNet18()


def narrow() -> nn.Module:
    """A quarter of the width: 0.7 million parameters."""
    return ResNet18(16)


def frozen() -> nn.Module:
    """The last layer trains."""
    module = ResNet18()
    module.requires_grad_(False)
    module.fc = nn.Linear(512, 10)
    return module


def frozen_wide() -> nn.Module:
    """The last layer trains, behind 25 million frozen parameters."""
    module = ResNet18(96)
    module.requires_grad_(False)
    module.fc = nn.Linear(768, 10)
    return module
