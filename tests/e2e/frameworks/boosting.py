import numpy as np
from trainer.peers import connected_replicas
from trainer.steps import take_steps
from xgboost import collective

with connected_replicas(600):
    take_steps(lambda value: float(collective.allreduce(np.array([value]), collective.Op.SUM)[0]))
