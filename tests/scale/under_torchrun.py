"""Started by torchrun in `test_launch.py`: prints rank and world of this process."""

import torch.distributed as dist

from sirgcn.scale.launch import joined


def main() -> None:
    with joined(seconds=120):
        # One write: the ranks share their output.
        print(f"{dist.get_rank()}/{dist.get_world_size()}\n", end="", flush=True)


if __name__ == "__main__":
    main()
