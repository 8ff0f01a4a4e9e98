"""The program with a real collective: a model of PyTorch that DistributedDataParallel trains over
gloo, so that each step has an all_reduce between all ranks.

`ddp.py FILE` appends lines of JSON to FILE, as `steps.py` does. It ends when any rank has seen
FILE.finish. Its first line comes before the import of PyTorch, as the start of the process does.
"""

import json
import os
import sys
import time
from pathlib import Path

FILE = sys.argv[1]
LINES = os.open(FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def write(moment: str) -> None:
    line = {"at": time.time(), "rank": RANK, "pid": os.getpid(), "moment": moment}
    os.write(LINES, (json.dumps(line) + "\n").encode())


RANK = int(os.environ["RANK"])
write("start")

import torch  # noqa: E402 - after the first line
from torch import distributed  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

STEP_S = 0.1


def main() -> None:
    write("import")
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the ranks share a machine
    distributed.init_process_group("gloo")
    write("join")
    model = DistributedDataParallel(torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    ends = torch.zeros(1)
    while not ends:
        time.sleep(STEP_S)
        optimizer.zero_grad()
        model(torch.rand(32, 64)).square().mean().backward()
        optimizer.step()
        # All ranks end after the same step: a rank that ended alone would fail the others.
        ends.fill_(Path(f"{FILE}.finish").exists())
        distributed.all_reduce(ends)
        write("step")
    write("end")
    distributed.destroy_process_group()


main()
