"""Print which of torchvision and torchaudio cannot be used with the installed torch.

The three are built for each other. PyPI's are builds for CUDA, which a torch for CPUs cannot load, whatever their
versions say: `make images` leaves them out of an image with such a torch.
"""

import sys
from collections.abc import Callable


def use_torchvision() -> None:
    import torch
    from torchvision.ops import nms

    nms(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.ones(1), 0.5)


def use_torchaudio() -> None:
    import torch
    from torchaudio.functional import lfilter

    lfilter(torch.zeros(1, 100), torch.ones(3), torch.ones(3))


COMPANIONS: dict[str, Callable[[], None]] = {"torchvision": use_torchvision, "torchaudio": use_torchaudio}

if __name__ == "__main__":
    for name, use in COMPANIONS.items():
        try:
            use()
        except (ImportError, OSError, RuntimeError) as error:
            print(f"{name} is no build for this torch: {error}", file=sys.stderr)
            print(name)
