"""The benchmark's program as a step of a Metaflow flow: `metaflow_flow.py run --file FILE`.

The program appends the times of its moments to FILE (`steps.py`). Metaflow runs a step that failed
again, without its usual wait of minutes.
"""

import steps
from metaflow import FlowSpec, Parameter, retry, step


class Train(FlowSpec):
    file = Parameter("file")

    @retry(minutes_between_retries=0)
    @step
    def start(self):
        steps.run(self.file)
        self.next(self.end)

    @step
    def end(self):
        pass


Train()
