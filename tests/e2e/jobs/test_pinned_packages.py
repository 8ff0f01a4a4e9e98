"""A trainer that pins another version of a package than the runtime has, as many old
programs do.
"""

from __future__ import annotations

import textwrap

import pytest

from tests.e2e.conftest import Lab
from tests.integration.agent.support.packages import wheel_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

PINNED = "1.7.2"
TASK = """
import sklearn
from sklearn.linear_model import LogisticRegression

model = LogisticRegression().fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
print("scikit-learn", sklearn.__version__, "score", model.score([[0.0], [3.0]], [0, 1]), flush=True)
"""


@pytest.mark.heavy(
    fact="a trainer has the versions that it pins",
    quick=(
        "`integration/agent/test_installed_packages.py`,"
        " `integration/agent/test_runtime_packages.py`"
    ),
)
def test_trainer_with_a_pinned_scikit_learn_trains_with_that_version(lab: Lab) -> None:
    wheel = wheel_of(
        "pinned_trainer",
        {"pinned/__init__.py": "", "pinned/task.py": textwrap.dedent(TASK)},
        requires=(f"scikit-learn=={PINNED}",),
    )
    uri = f"gs://{lab.bucket}/packages/pinned/pinned_trainer-0.1-py3-none-any.whl"
    lab.objects.write(uri, wheel, content_type="application/octet-stream")
    spec = lab.scripted_spec(workers=0, packageUris=[uri], pythonModule="pinned.task", args=[])
    job_id = lab.upload(spec, "pinned")
    lab.wait_for_success(job_id, within_s=150)
    logged = lab.stack.run("trainmaster", "logs", job_id).stdout
    assert f"scikit-learn {PINNED} score 1.0" in logged
