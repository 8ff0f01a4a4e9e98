"""A job gets the new machine with its GPUs, in both formats, and the emulator lists it."""

from tests.support.jobs import a_spec
from trainmaster.api.enum_numbers import replace_numbers
from trainmaster.core.model.task_group import Accelerator
from trainmaster.jobspec.accept import accept
from trainmaster_emulators.machines.catalog import Catalog, Links

document = a_spec(masterType="a5-highgpu-8g", workerCount=0, workerType="")
plan = accept({**document, "trainmaster": {"spot": "all"}}, default_job_id="digits_1").plan
assert plan.groups[0].machine_type == "a5-highgpu-8g"
assert plan.groups[0].accelerator == Accelerator("nvidia-b300", 8)
assert replace_numbers({"acceleratorType": 19}) == {"acceleratorType": "NVIDIA_B300"}
listed = Catalog(Links("http://localhost", "p")).machine_types("us-central1-a")
assert "a5-highgpu-8g" in {machine["name"] for machine in listed}
