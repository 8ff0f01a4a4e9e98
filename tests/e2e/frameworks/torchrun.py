"""Plain torchrun: one node for each replica, nothing restarted by torchrun itself."""

import os
import sys

nodes, rank, host, port = (os.environ[name] for name in ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT"))
where = ["--nnodes", nodes, "--node-rank", rank, "--master-addr", host, "--master-port", port]
os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", *where, "-m", "trainer.ddp"])  # noqa: S606
