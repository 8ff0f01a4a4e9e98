"""The program as a workflow of DBOS: `dbos_workflow.py FILE`.

A second start goes on with the workflow.
"""

import sys

import steps
from dbos import DBOS, SetWorkflowID

DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{sys.argv[1]}.sqlite"})


@DBOS.workflow()
def train():
    steps.run(sys.argv[1])


DBOS.launch()
with SetWorkflowID("train"):
    DBOS.start_workflow(train).get_result()
