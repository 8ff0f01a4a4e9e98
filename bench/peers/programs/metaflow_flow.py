"""The benchmark's program as a step of a Metaflow flow: `metaflow_flow.py run --file FILE`."""

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
