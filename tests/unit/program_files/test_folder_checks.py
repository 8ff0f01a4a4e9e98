"""Folders that cannot run are refused before a VM is paid for; folders that may run are not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainmaster.errors import PermanentError
from trainmaster.jobspec.job_document import field_at
from trainmaster.program_files.findings import ProgramFinding
from trainmaster.wiring.folder_checks import (
    check_folder,
    refuse_folder,
    with_chosen_runtime,
)

PYTORCH = "pytorch-2.13"


def check(
    folder: Path, files: dict[str, str], *command: str, runtime: str = PYTORCH
) -> list[ProgramFinding]:
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    training = {"region": "us-central1", "runtimeVersion": runtime, "args": list(command)}
    return check_folder({"jobId": "a", "trainingInput": training}, folder)


FILES = {
    "train.py": "import os\n",
    "run.sh": "python train.py\n",
    "src/main.py": "import helper\n",
    "src/helper.py": "",
    "trainer/__init__.py": "",
    "trainer/task.py": "from trainer import model\nfrom . import model\n",
    "trainer/model.py": "",
    "app/__main__.py": "",
}

REFUSED_COMMANDS = {
    "python missing.py": ("missing.py is not among the files that the job gets", "src/main.py"),
    "python -u trian.py": ("trian.py is not among", "did you mean train.py?"),
    "python main.py": ("main.py is not among", "did you mean src/main.py?"),
    "python -W ignore -X dev trian.py": ("trian.py is not among", "train.py"),
    "trian.py --lr 1": ("trian.py is not among", "train.py"),
    "bash -euo pipefail rum.sh": ("rum.sh is not among", "run.sh"),
    "./run --fast": ("./run is not among", ""),
    "torchrun --nproc_per_node 2 trian.py": ("trian.py is not among", "train.py"),
    "python -m trainer.task.py": ("trainer.task.py is the name of a file", "write trainer.task"),
    "python -um trainer.tsk": ("trainer/ has no module tsk", "trainer.task"),
    "python src": ("src is a folder without __main__.py", ""),
    "run.sh": None,
    "LR=1 python train.py": ("'LR=1' is no program", "env"),
    "train.py": None,
    "python train.py": None,
    "python3.12 -um trainer.task": None,
    "python app": None,
    "python -m torch.distributed.run train.py": None,
    "python -c pass": None,
    "python /opt/tool.py": None,
    "python ../tool.py": None,
    "bash -c missing.sh": None,
    "torchrun --nproc-per-node=2 -m trainer.task": None,
    "timeout -s KILL 2h python trian.py": ("trian.py is not among", "train.py"),
    "/usr/bin/nice -n 5 /usr/bin/python3 -u trian.py": ("trian.py is not among", "train.py"),
    "env -u DISPLAY torchrun -m trainer.tsk": ("trainer/ has no module tsk", "trainer.task"),
    "torchrun trian.py -m fast": ("trian.py is not among", "train.py"),
    "env --unknown /dev/null trian.py": None,
    "env -C src python main.py": None,
    "uv run --directory=src python main.py": None,
    "conda run --cwd src python main.py": None,
    "nice -n 5 /opt/bin/tool trian.py": None,
    "timeout -k 5 2h python train.py": None,
    "/opt/tool.py": None,
    "timeout": None,
    "accelerate launch train.py": None,
    "env LR=1 python train.py": None,
    "my-installed-program": None,
}


@pytest.mark.parametrize("command", REFUSED_COMMANDS)
def test_command_is_refused_exactly_if_the_folder_lacks_what_it_starts(
    command: str, tmp_path: Path
) -> None:
    expected = REFUSED_COMMANDS[command]
    refused = [found for found in check(tmp_path, FILES, *command.split()) if found.must_fail]
    if expected is None:
        assert refused == []
    else:
        ((problem, remedy),) = [(found.problem, found.remedy) for found in refused]
        assert problem.startswith(expected[0])
        assert expected[1] in remedy


def test_command_in_one_pair_of_quotes_is_refused_with_its_words(tmp_path: Path) -> None:
    (found,) = check(tmp_path, FILES, "python train.py --x 1")
    assert found.must_fail
    assert found.remedy.endswith("-- python train.py --x 1")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("nosuchprog", "no file of the folder is the program nosuchprog"),
        ("uv run train.py", "no file of the folder is the program uv"),
        ("python -m proj.task", "proj.task is below src/"),
        ("bash windows.sh", "the lines of windows.sh end with CR LF"),
        ("python train.py && echo done", "without a shell, and '&&' is an argument"),
    ],
)
def test_command_that_may_run_is_a_warning(command: str, words: str, tmp_path: Path) -> None:
    files = {"src/proj/task.py": "", "windows.sh": "set -e\r\npython train.py\r\n"}
    (found,) = check(tmp_path, {**FILES, **files}, *command.split())
    assert words in found.problem
    assert not found.must_fail


@pytest.mark.parametrize(
    ("command", "requirements"),
    [
        ("nohup python train.py", ""),
        ("papermill eda.ipynb out.ipynb", "papermill>=2\n"),
        ("pytest tests", "Pytest==9.*\n"),
        ("uv run train.py", "uv\n"),
        ("env PYTHONPATH=src python -m proj.task", ""),
        ("python -m src.helper", ""),
    ],
)
def test_program_that_the_vm_has_gives_no_warning(
    command: str, requirements: str, tmp_path: Path
) -> None:
    files = {**FILES, "src/proj/task.py": "", "requirements.txt": requirements}
    assert check(tmp_path, files, *command.split()) == []


@pytest.mark.parametrize("runner", ["poetry run", "conda run -n ml", "srun -N 2", "mpirun -np 4"])
def test_runner_that_no_vm_has_names_what_takes_its_place(runner: str, tmp_path: Path) -> None:
    (found,) = check(tmp_path, FILES, *runner.split(), "python", "train.py")
    assert "give only the command that it runs" in found.remedy
    assert not found.must_fail


def test_imports_of_a_program_that_another_one_starts_are_checked(tmp_path: Path) -> None:
    files = {"train.py": "import einops\n", "requirements.txt": ""}
    (found,) = check(tmp_path, files, "timeout", "-s", "KILL", "2h", "python", "train.py")
    assert "einops" in found.problem


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("-r requirements/base.txt", "write the lines of requirements/base.txt in its place"),
        ("--constraint=c.txt", "write the versions into the lines"),
        ("-e .", "leave it out"),
        (".", "leave it out"),
        ("git+https://github.com/a/b.git@main", "write NAME @ before the address"),
        ("-e git+https://github.com/a/b.git#egg=b", "write NAME @ before the address"),
        ("einops==0.8.1 \\", "leave out its hashes"),
        ("einops==0.8.1 --hash=sha256:00", "leave out its hashes"),
        ("--extra-index-url https://x", "it must be a package, such as pandas==2.3"),
    ],
)
def test_line_that_only_pip_reads_is_refused_with_what_to_write(
    line: str, remedy: str, tmp_path: Path
) -> None:
    files = {**FILES, "requirements.txt": f"numpy\n{line}\n"}
    with pytest.raises(PermanentError) as refused:
        check(tmp_path, files, "python", "train.py")
    assert "requirements.txt:2: " in str(refused.value)
    assert remedy in str(refused.value)


TEE = "python train.py 2>&1 | tee log.txt"


@pytest.mark.parametrize(
    ("command", "script"),
    [
        (("bash", "-c", TEE), ""),
        (("sh", "-c", "python train.py | tee log"), ""),
        (("bash", "run.sh"), f"set -e\n{TEE}\n"),
        (("bash", "run.sh"), "python train.py |& tee log\n"),
        (("bash", "run.sh"), "python train.py | \\\n  tee log\n"),
    ],
)
def test_pipe_that_hides_a_failure_is_a_warning(
    command: tuple[str, ...], script: str, tmp_path: Path
) -> None:
    (found,) = check(tmp_path, {**FILES, "run.sh": script}, *command)
    assert not found.must_fail
    assert "pipe to tee" in found.problem
    assert "set -eo pipefail" in found.remedy


@pytest.mark.parametrize(
    ("command", "script"),
    [
        (("bash", "-o", "pipefail", "-c", TEE), ""),
        (("bash", "-eo", "pipefail", "run.sh"), TEE),
        (("bash", "run.sh"), f"set -euo pipefail\n{TEE}\n"),
        (("bash", "run.sh"), f"{TEE}\nexit ${{PIPESTATUS[0]}}\n"),
        (("bash", "run.sh"), "# python train.py | tee log\npython train.py\n"),
        (("bash", "run.sh"), "python train.py > log || teeth\n"),
    ],
)
def test_script_that_keeps_a_failure_has_no_warning(
    command: tuple[str, ...], script: str, tmp_path: Path
) -> None:
    assert check(tmp_path, {**FILES, "run.sh": script}, *command) == []


@pytest.mark.parametrize(
    ("line", "is_hidden"),
    [
        ("python train.py > out.log 2>&1", True),
        ("exec torchrun train.py &> out.log", True),
        ("nohup python3 train.py 2>err.log", True),
        ("python train.py --lr 2 > out.log", False),
        ("python train.py 2>&1", False),
        ("# python train.py 2> err.log", False),
        ("mkdir data 2> /dev/null", False),
        ("python train.py 1>&2", False),
    ],
)
def test_errors_that_a_script_writes_to_a_file_are_a_warning(
    line: str, is_hidden: bool, tmp_path: Path
) -> None:
    found = check(tmp_path, {**FILES, "run.sh": f"set -e\n{line}\n"}, "bash", "run.sh")
    assert [finding.must_fail for finding in found] == ([False] if is_hidden else [])
    assert all("go to a file on the VM" in finding.problem for finding in found)


BROKEN = "def f(:\n    pass\n"


@pytest.mark.parametrize(
    "files",
    [
        {"train.py": BROKEN},
        {"train.py": "import model\n", "model.py": BROKEN},
        {"train.py": "from nets.deep import Net\n", "nets/deep.py": BROKEN},
        {"train.py": "from nets import deep\n", "nets/__init__.py": "", "nets/deep.py": BROKEN},
        {"train.py": "import nets.deep\n", "nets/__init__.py": BROKEN, "nets/deep.py": ""},
        {
            "train.py": "import nets\n",
            "nets/__init__.py": "from .a import x\n",
            "nets/a.py": BROKEN,
        },
        {"train.py": "if __name__ == '__main__':\n    import model\n", "model.py": BROKEN},
    ],
)
def test_file_that_the_program_always_imports_with_a_syntax_error_is_refused(
    files: dict[str, str], tmp_path: Path
) -> None:
    (found,) = check(tmp_path, files, "python", "train.py")
    assert found.must_fail
    assert ":1 is not valid Python: invalid syntax" in found.problem
    assert "'def f(:'" in found.remedy


@pytest.mark.parametrize("command", ["python -m nets.train", "python -um nets.deep.train"])
def test_package_that_the_started_module_is_in_with_a_syntax_error_is_refused(
    command: str, tmp_path: Path
) -> None:
    files = {"nets/__init__.py": BROKEN, "nets/train.py": "", "nets/deep/train.py": ""}
    (found,) = check(tmp_path, files, *command.split())
    assert found.must_fail
    assert found.problem.startswith("nets/__init__.py:1 ")


@pytest.mark.parametrize("program", ["-" * 100_000 + "1\n", "x = 1" + " + 1" * 50_000])
def test_file_that_is_nested_too_deeply_for_the_parser_is_not_judged(
    program: str, tmp_path: Path
) -> None:
    assert check(tmp_path, {"train.py": program}, "python", "train.py") == []


@pytest.mark.parametrize("words", ["a;", "a\n", "()\n", "f(a)\n", "[a,a]\n"])
def test_large_file_with_unusually_many_words_is_not_judged(words: str, tmp_path: Path) -> None:
    """The time and the memory of Python's parser depend on them."""
    program = words * (240_000 // len(words)) + "\n" + BROKEN
    assert check(tmp_path, {"train.py": program}, "python", "train.py") == []


def test_large_file_of_usual_lines_is_judged(tmp_path: Path) -> None:
    line = "loss = criterion(model(inputs), labels) / accumulation_steps\n"
    program = line * (240_000 // len(line)) + BROKEN
    (found,) = check(tmp_path, {"train.py": program}, "python", "train.py")
    assert found.must_fail


def test_message_shows_the_beginning_of_a_long_line(tmp_path: Path) -> None:
    (found,) = check(
        tmp_path, {"train.py": f"x = 1 1{' ' * 20}{'#' * 9999}\n"}, "python", "train.py"
    )
    assert len(found.remedy) < 120


@pytest.mark.parametrize(
    "program",
    [
        "print()\n",
        "def main():\n    import model\n",
        "try:\n    import model\nexcept Exception:\n    pass\n",
        "import sys\nif sys.argv[1:]:\n    import model\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import model\n",
    ],
)
def test_file_that_may_never_be_imported_is_a_warning(program: str, tmp_path: Path) -> None:
    (found,) = check(tmp_path, {"train.py": program, "model.py": BROKEN}, "python", "train.py")
    assert not found.must_fail
    assert found.problem.startswith("model.py:1 is not valid Python")


@pytest.mark.parametrize(
    "line",
    [
        "type Pair = tuple[int, int]",
        "def first[T](x: T) -> T: ...",
        "x = {'a': 1}; print(f'{x['a']}')",
        "x = {'a': 1}; print(f'{x['a']}'\n    'b')",
    ],
)
def test_syntax_of_the_runtimes_newer_python_is_not_refused(line: str, tmp_path: Path) -> None:
    found = check(tmp_path, {"train.py": f"{line}\n"}, "python", "train.py")
    assert [finding.must_fail for finding in found] == [False] * (sys.version_info < (3, 12))


@pytest.mark.parametrize(
    ("requirement", "is_refused"),
    [
        ("torch<2.6", True),
        ("torch==2.12.1", True),
        ("torchvision~=0.19.0", True),
        ("torch>=2", False),
        ("torch==2.13.0", False),
        ("torch<2.6; python_version < '3.9'", False),
        ("numpy<2", False),
        ("torchmetrics==1.4", False),
        ("torch==2.5.0+cu121", True),
        ("torch<2.6; platform_machine == 'arm64'", False),
        ("torch<2.6; platform_system == 'Darwin'", False),
        ("torch<2.6; platform_machine == 'x86_64'", True),
        ("torch<2.6; platform_system == 'Linux' and os_name == 'posix'", True),
    ],
)
def test_requirement_that_excludes_the_runtimes_framework_is_refused(
    requirement: str, is_refused: bool, tmp_path: Path
) -> None:
    files = {"train.py": "", "requirements.txt": f"{requirement}\n"}
    found = check(tmp_path, files, "python", "train.py")
    assert [finding.must_fail for finding in found] == [True] * is_refused
    assert all("requirements.txt" in finding.remedy for finding in found)


def test_build_that_pypi_does_not_have_is_a_warning(tmp_path: Path) -> None:
    files = {"train.py": "", "requirements.txt": "torch==2.1.0+cu118\n"}
    (found,) = check(tmp_path, files, "python", "train.py", runtime="scikit-learn-1.9")
    assert not found.must_fail
    assert (
        found.problem == "requirements.txt: torch==2.1.0+cu118 is a build that PyPI does not have"
    )


@pytest.mark.parametrize(
    "requirement",
    ["torch==2.13.0+cu130", "torch @ https://example.com/torch-2.13.0-cp312-none-any.whl"],
)
def test_other_build_of_the_runtimes_version_is_a_warning(requirement: str, tmp_path: Path) -> None:
    files = {"train.py": "", "requirements.txt": f"{requirement}\n"}
    (found,) = check(tmp_path, files, "python", "train.py")
    assert not found.must_fail
    assert found.problem == (
        f"requirements.txt: {requirement} is another build of torch 2.13 than that of the runtime"
        " pytorch-2.13, which no package may replace"
    )


def test_requirement_of_another_build_of_the_runtimes_framework_is_refused(tmp_path: Path) -> None:
    files = {"train.py": "", "requirements.txt": "tensorflow-cpu==2.12.1\n"}
    (found,) = check(tmp_path, files, "python", "train.py", runtime="2.21")
    assert found.problem.startswith("requirements.txt: tensorflow-cpu==2.12.1 excludes")


@pytest.mark.parametrize(
    ("program", "requirements", "runtime", "expected"),
    [
        ("import torch", "", "2.21", "choose --runtime-version pytorch-2.13"),
        ("import tensorflow as tf", "", PYTORCH, "choose --runtime-version 2.21"),
        ("import einops", "", PYTORCH, "add einops to requirements.txt"),
        ("import cv2", "", PYTORCH, "add opencv-python to requirements.txt"),
        ("import imp", "", PYTORCH, "replace it"),
        ("import pytz", "", PYTORCH, "add pytz to requirements.txt"),
        ("import pkg_resources", "", PYTORCH, "add setuptools<81 to requirements.txt"),
        ("import pkg_resources", "setuptools<81", PYTORCH, None),
        ("import aiohttp, attr, cloudpickle, grpc, mpmath, markupsafe", "", PYTORCH, None),
        ("import rich, werkzeug, tf_keras, opt_einsum", "", "2.21", None),
        ("import cv2", "opencv-python-headless", PYTORCH, None),
        ("import einops", "einops>=0.8", PYTORCH, None),
        ("import torch, numpy, sklearn, yaml, PIL, google.auth", "", PYTORCH, None),
        ("import keras, absl.app", "", "2.21", None),
        ("try:\n    import wandb\nexcept ImportError:\n    wandb = None", "", PYTORCH, None),
        ("import lib", "", PYTORCH, None),
        ("import json, tomllib, distutils", "", PYTORCH, None),
    ],
)
def test_module_that_nothing_brings_is_a_warning_with_its_remedy(
    program: str, requirements: str, runtime: str, expected: str | None, tmp_path: Path
) -> None:
    files = {"train.py": f"{program}\n", "requirements.txt": requirements, "vendor/lib.py": ""}
    found = check(tmp_path, files, "python", "train.py", runtime=runtime)
    assert not any(finding.must_fail for finding in found)
    if expected is None:
        assert found == []
    else:
        assert [expected in finding.remedy for finding in found] == [True]


def test_everything_that_must_fail_is_refused_at_once(tmp_path: Path) -> None:
    files = {"train.py": BROKEN, "requirements.txt": "torch<2.6\n"}
    with pytest.raises(PermanentError) as refused:
        refuse_folder(check(tmp_path, files, "python", "train.py"))
    assert "train.py:1" in str(refused.value)
    assert "torch<2.6" in str(refused.value)


@pytest.mark.parametrize(
    ("files", "command", "runtime"),
    [
        ({"train.py": "import torch\n"}, "python train.py", "pytorch-2.13"),
        ({"train.py": "from net import f\n", "net.py": "import torchvision\n"}, "", "pytorch-2.13"),
        ({"train.py": "print(1)\n"}, "torchrun train.py", "pytorch-2.13"),
        ({"train.py": "import xgboost, sklearn\n"}, "", "xgboost-3.2"),
        ({"train.py": "from sklearn import svm\n"}, "", "scikit-learn-1.9"),
        ({"train.py": "import jax\n"}, "", "scikit-learn-1.9"),
        ({"train.py": "import tensorflow\n"}, "", None),
        ({"train.py": "import tensorflow, torch\n"}, "", None),
        ({"train.py": "print(1)\n", "old.py": "import torch\n"}, "", None),
        ({"train.py": "def f():\n    import torch\n"}, "", "pytorch-2.13"),
    ],
    ids=str,
)
def test_runtime_is_that_of_the_imports_unless_the_job_names_one(
    tmp_path: Path, files: dict[str, str], command: str, runtime: str | None
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    training = {"region": "us-central1", "args": (command or "python train.py").split()}
    document = {"jobId": "a", "trainingInput": training}
    chosen, why = with_chosen_runtime(document, tmp_path)
    assert field_at(chosen, ("trainingInput", "runtimeVersion")) == runtime
    assert bool(why) == (runtime is not None)
    named = {"jobId": "a", "trainingInput": {**training, "runtimeVersion": "2.21"}}
    assert with_chosen_runtime(named, tmp_path) == (named, "")


@pytest.mark.parametrize(
    ("command", "runtime"),
    [
        (["bash", "-ec", "echo start\ntorchrun --nproc_per_node=1 other.py $EPOCHS"], PYTORCH),
        (["bash", "-euo", "pipefail", "-c", "cd src && python ./train.py"], PYTORCH),
        (["bash", "run.sh"], PYTORCH),
        (["./run.sh"], PYTORCH),
        (["env", "A=1", "OMP_NUM_THREADS=2", "torchrun", "other.py"], PYTORCH),
        (["timeout", "-k", "5", "2h", "nice", "-n", "10", "python", "train.py"], PYTORCH),
        (["timeout", "-s", "KILL", "5", "torchrun", "other.py"], PYTORCH),
        (["timeout", "--kill-after=5", "--signal", "INT", "2h", "torchrun", "other.py"], PYTORCH),
        (["env", "-u", "DISPLAY", "-C", "src", "A=1", "torchrun", "other.py"], PYTORCH),
        (["sudo", "-Eu", "me", "A=1", "nice", "-n5", "torchrun", "other.py"], PYTORCH),
        (["stdbuf", "-oL", "-e", "0", "torchrun", "other.py"], PYTORCH),
        (["xvfb-run", "-a", "-s", "-screen 0 1x1x24", "torchrun", "other.py"], PYTORCH),
        (["numactl", "--cpunodebind", "0", "-m", "0,1", "torchrun", "other.py"], PYTORCH),
        (["taskset", "-c", "0-3,8", "ionice", "-c", "3", "torchrun", "other.py"], PYTORCH),
        (["poetry", "-C", "app", "run", "torchrun", "other.py"], PYTORCH),
        (["uv", "run", "--with", "rich", "train.py"], PYTORCH),
        (["uv", "run", "-m", "train"], PYTORCH),
        (["conda", "run", "-n", "tf", "--no-capture-output", "torchrun", "other.py"], PYTORCH),
        (["accelerate", "launch", "other.py"], PYTORCH),
        (["bash", "-lc", "time -p nohup torchrun other.py &"], PYTORCH),
        (["srun", "-N", "2", "--gres", "gpu:8", "--label", "torchrun", "other.py"], PYTORCH),
        (["mpirun", "-np", "4", "--mca", "btl", "tcp", "python", "train.py"], PYTORCH),
        (["python", "-m", "cProfile", "-o", "profile.out", "train.py"], PYTORCH),
        (["python", "-m", "coverage", "run", "-m", "train"], PYTORCH),
        (["nsys", "profile", "-o", "report", "python", "train.py"], PYTORCH),
        (["/usr/bin/env", "/usr/bin/python3", "-u", "train.py"], PYTORCH),
        (["/bin/bash", "-c", "/opt/conda/bin/torchrun other.py"], PYTORCH),
        (["torchrun", "-m", "tf"], None),
        (["env", "-u", "torchrun", "python", "other.py"], None),
        (["uv", "pip", "install", "torchrun"], None),
        (["timeout", "5"], None),
        (["python", "-m", "torch.distributed.run", "other.py"], PYTORCH),
        (["bash", "-c", "A=1 exec python -m train || (echo failed; exit 1)"], PYTORCH),
        (["bash", "-c", "for n in 1 2; do python train.py; done"], PYTORCH),
        (["bash", "-c", "python tf.py; python train.py"], None),
        (["bash", "-c", "echo 'torchrun train.py"], None),
        (["bash", "loop.sh"], None),
        (["bash", "missing.sh"], None),
        (["bash", "-c", "echo torchrun"], None),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_runtime_is_chosen_by_what_a_shell_or_another_program_starts(
    tmp_path: Path, command: list[str], runtime: str | None
) -> None:
    for name, content in {
        "train.py": "import torch\n",
        "other.py": "print(1)\n",
        "tf.py": "import tensorflow\n",
        "run.sh": "#!/bin/bash\n# prepare\nexport A=1\ntorchrun \\\n  other.py\n",
        "loop.sh": "bash loop.sh\n",
    }.items():
        (tmp_path / name).write_text(content)
    document = {"jobId": "a", "trainingInput": {"region": "us-central1", "args": command}}
    chosen, _ = with_chosen_runtime(document, tmp_path)
    assert field_at(chosen, ("trainingInput", "runtimeVersion")) == runtime


GPU = {"masterConfig": {"acceleratorConfig": {"type": "NVIDIA_TESLA_T4", "count": 1}}}
CUSTOM = {"scaleTier": "CUSTOM", "masterType": "n1-standard-8"}
PREBUILT = "us-docker.pkg.dev/vertex-ai/training/tf-gpu.2-14.py310:latest"


@pytest.mark.parametrize(
    ("training", "extension", "runtime"),
    [
        (CUSTOM | GPU, {}, PYTORCH),
        ({"masterConfig": {"diskConfig": {"bootDiskSizeGb": 200}}}, {}, PYTORCH),
        ({"master_config": {"disk_config": {"boot_disk_size_gb": 200}}}, {}, PYTORCH),
        ({"masterConfig": {"imageUri": ""}}, {}, PYTORCH),
        ({"masterConfig": {"imageUri": PREBUILT}}, {}, None),
        ({"master_config": {"image_uri": PREBUILT}}, {}, None),
        ({}, {"image": "projects/p/global/images/own"}, None),
        ({}, {"image": ""}, PYTORCH),
    ],
    ids=str,
)
def test_runtime_is_chosen_unless_the_job_names_an_image(
    tmp_path: Path, training: dict[str, Any], extension: dict[str, Any], runtime: str | None
) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    training = {"region": "us-central1", "args": ["python", "train.py"], **training}
    document = {"jobId": "a", "trainingInput": training, "trainmaster": extension}
    chosen, _ = with_chosen_runtime(document, tmp_path)
    assert field_at(chosen, ("trainingInput", "runtimeVersion")) == runtime


def test_choice_of_the_runtime_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\nimport torch.nn\n")
    training = {"region": "us-central1", "args": ["python", "train.py"]}
    _, why = with_chosen_runtime({"jobId": "a", "trainingInput": training}, tmp_path)
    assert why.startswith("runtime: pytorch-2.13, because train.py:2 imports torch; ")


@pytest.mark.parametrize("name", ["lib", "lib.py", "src/lib"])
def test_import_of_what_the_folder_leaves_out_says_why(name: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "lib").mkdir(parents=True)
    (elsewhere / "lib.py").touch()
    folder = tmp_path / "folder"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).symlink_to(elsewhere / Path(name).name)
    [finding] = check(folder, {"train.py": "import lib\n"}, "python", "train.py", runtime=PYTORCH)
    assert str(finding) == (
        f"train.py:1 imports lib, but {name} is left out (leads out of the folder): replace the"
        f" link {name} by a copy of what it leads to, unless another package brings lib"
    )


def test_import_of_what_git_ignores_says_how_to_keep_it(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    files = {"train.py": "import lib\n", "lib.py": "", ".gitignore": "lib.py\n"}
    [finding] = check(tmp_path, files, "python", "train.py", runtime=PYTORCH)
    assert str(finding) == (
        "train.py:1 imports lib, but lib.py is left out (git ignores it): add the line !lib.py to"
        " .trainmasterignore, unless another package brings lib"
    )
