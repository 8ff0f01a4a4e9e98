"""What a user changes in a program, by the error that it ended with: `remedy_of_exit` goes from an
exit to one or two sentences of advice.

The advice fits the runtime and the way of submission: a folder has requirements.txt, a package has
setup.py, a container has its image. The `errorMessage` of the job has it, and so has whatever else
shows how the job ended. docs/migrating.md says more about programs that were written for runtimes
of AI Platform Training.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from trainmaster.core.events import ExitCause, ProgramError, ReplicaExited
from trainmaster.core.model.origin import Dialect
from trainmaster.core.model.plan import GcsFolder, Plan
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.rules.left_ranks import is_launched, is_of_collective
from trainmaster.core.rules.module_packages import package_of
from trainmaster.program_errors.meaning import Meaning, meaning_of

FOLDER_MODULE: Final = "trainmaster_folder"
"""The job's `pythonModule` if its program is a folder."""
RUNTIMES_WITH: Final = {
    "tensorflow": "2.21",
    "torch": "pytorch-2.13",
    "torchaudio": "pytorch-2.13",
    "torchvision": "pytorch-2.13",
    "xgboost": "xgboost-3.2",
}
"""Module → the newest `runtimeVersion` that has it, of those modules that other runtimes lack."""
OWN_IMAGE: Final = (
    "An image of your own still runs it as it is: build it FROM"
    " us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-11.py310 with your package, and name it in"
    " `masterConfig.imageUri`."
)

PEER_ENDED: Final = (
    "Another rank had ended: the logs of the other replicas say how. If it ended with 0, give all"
    " ranks the same number of steps."
)

_SYNTAX_ERRORS: Final = ("SyntaxError", "IndentationError", "TabError")
_IMPORT_ERRORS: Final = ("ModuleNotFoundError", "ImportError")
_NO_MODULE: Final = re.compile(r"No module named '?([\w.]+)'?")
_NOT_A_PACKAGE: Final = "is not a package"
"""Words of Python for a module in front of a package of the same name."""
_NO_SUCH_FILE: Final = re.compile(r"No such file or directory: '([^']+)'")
_NOT_ACCEPTED: Final = re.compile(r"error: unrecognized arguments: (.+)")
_NO_PROGRAM: Final = re.compile(
    r"can't open file '(?P<file>[^']+)'|^(?P<command>\S+) cannot be started: (?P<why>.*)",
    re.MULTILINE,
)
"""Words of Python, and of the agent."""
_NOT_EXECUTABLE: Final = "Permission denied"
_READS_VARIABLE: Final = re.compile(r"(?:<frozen os>|\bos\.py):\d+ in __getitem__")
"""The frame of a KeyError of `os.environ`."""
_DISK_FULL: Final = re.compile(
    r"no space left on device|\[errno (?:28|122)\]|disk quota exceeded|database or disk is full"
    r"|PytorchStreamWriter failed writing file|inline_container\.cc.*unexpected pos \d+ vs \d+"
    r"|^\d+ requested and \d+ written",
    re.IGNORECASE,
)
"""Words of the operating system, of SQLite, and of PyTorch and NumPy, which hide the system's."""
_OF_DEVICE: Final = re.compile(r"\b(?:cuda|hip|cublas)|gpu|OutOfMemoryError", re.IGNORECASE)
"""In a lack of memory: words for that of a GPU."""
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - the path that errors name
_DISK_FIELDS: Final = {
    Dialect.AI_PLATFORM: {
        TaskType.CHIEF: "masterConfig.diskConfig",
        TaskType.MASTER: "masterConfig.diskConfig",
        TaskType.WORKER: "workerConfig.diskConfig",
        TaskType.PS: "parameterServerConfig.diskConfig",
        TaskType.EVALUATOR: "evaluatorConfig.diskConfig",
    },
    Dialect.VERTEX: {
        TaskType.CHIEF: "workerPoolSpecs[0].diskSpec",
        TaskType.MASTER: "workerPoolSpecs[0].diskSpec",
        TaskType.WORKER: "workerPoolSpecs[1].diskSpec",
        TaskType.PS: "workerPoolSpecs[2].diskSpec",
        TaskType.EVALUATOR: "workerPoolSpecs[3].diskSpec",
    },
}
"""The field of a role's boot disk."""
_NO_RANK: Final = re.compile(
    r"environment variable (?P<name>RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT) expected, but not set"
    r"|^'(?P<key>RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT)'$"
)
"""Words of PyTorch, and of Python's KeyError."""
_DISK_GIB_MAX: Final = 65_536
"""Largest boot disk of Compute Engine."""
_USAGE_STATUS: Final = 2
"""Exit status of argparse for arguments, and of Python for a file that it cannot open."""
_NOT_FOUND_STATUS: Final = 127
"""Exit status of a shell for a command that does not exist."""

_PROGRAM_FAILURES: Final = {
    r"sklearn\.externals": (
        "scikit-learn 0.23 removed `sklearn.externals`: write `import joblib` and `import six`, and"
        " add both to {requirements}."
    ),
    r"has no attribute 'estimator'"
    r"|No module named '?tensorflow_estimator"
    r"|tensorflow\.python\.estimator": (
        "TensorFlow 2.16 removed `tf.estimator`: train with `model.fit` of Keras, whose"
        f" BackupAndRestore callback continues after a restart. {OWN_IMAGE}"
    ),
    r"tensorflow\.contrib|module 'tensorflow' has no attribute 'contrib'": (
        "TensorFlow 2 has no `tf.contrib`: its parts are in Keras, tf.data and separate packages."
        f" {OWN_IMAGE}"
    ),
    r"module 'tensorflow' has no attribute"
    r" '(?:ConfigProto|GPUOptions|Session|app|flags|get_variable|gfile"
    r"|global_variables_initializer|layers|logging|log|placeholder|python_io|set_random_seed"
    r"|variable_scope)'": (
        "This is the API of TensorFlow 1: write `import tensorflow.compat.v1 as tf` and"
        f" `tf.disable_v2_behavior()`, or rewrite the model with Keras. {OWN_IMAGE}"
    ),
    r"PerReplica:|\bKeras 3\b|Argument\(s\) not recognized: \{'lr'|has no attribute"
    r" '(?:lr|fit_generator)'"
    r"|Invalid filepath extension for saving|must end in `\.(?:keras|weights\.h5)`|KerasTensor"
    r" cannot be used"
    r"|Unrecognized keyword arguments passed to|fit\(\) got an unexpected keyword argument"
    r"|module 'keras(?:\.[\w.]+)?' has no attribute": (
        'This is the API of Keras 2: set `trainmaster: {{env: {{TF_USE_LEGACY_KERAS: "1"}}}}` in'
        " the job file, which makes `tf.keras` Keras 2, or change the program for Keras 3. A"
        " program with `import keras` needs `import tf_keras as keras` instead."
    ),
    r"module 'numpy' has no attribute '(?:bool|complex|float|int|object|str)'": (
        "NumPy 1.24 removed its names of Python's own types: write `float` instead of `np.float`."
    ),
    r"cannot import name '[^']+' from partially initialized module '(?P<module>[^']+)'": (
        "The file that the error names and {module} import each other: write one of the imports"
        " into the function that needs it."
    ),
    r"cannot import name '(?P<name>[^']+)' from '(?P<module>[^']+)'": (
        "Correct the name: {module} has no {name}. If {module} is a library, name a version of it"
        " that has {name} in {requirements}."
    ),
    r"Distributed package doesn't have NCCL built in|Torch not compiled with CUDA"
    r"|No CUDA GPUs are available|Found no NVIDIA driver": (
        "The job's machines have no GPU: request GPUs, or let the program use the CPU and the"
        ' backend "gloo".'
    ),
    r"invalid load key, 'v'": (
        "The file is a pointer of Git LFS, which begins with the word version: run `git lfs pull`"
        " before you submit the job."
    ),
    r"failed reading zip archive|unexpected EOF, expected \d+ more bytes"
    r"|pickle data was truncated|invalid load key|Ran out of input"
    r"|No data left in file|could only read \d+ elements|EOF: reading array data"
    r"|File is not a zip file|ended before the end-of-stream marker"
    r"|truncated file: eof|file signature not found|Error while deserializing header"
    r"|Read less bytes than requested|too short to be an sstable|checksum does not match"
    r"|corrupted record at|^\n\S*torch/(?:serialization|_weights_only_unpickler)\.py:": (
        "The file is damaged, or was not written to its end, and a restart reads it again: remove"
        " it, so that the program begins from an older one. Write a checkpoint under another name"
        " first, and rename it."
    ),
    r"Error\(s\) in loading state_dict|size of optimizer's group|objects could not be loaded": (
        "The checkpoint is of another model: load it into the model that wrote it, or begin in an"
        " empty folder. Keys that begin with `module.` are those of `model.module`, which"
        " DistributedDataParallel wraps."
    ),
    r"DataLoader worker \(pid.*(?:exited unexpectedly|is killed by signal: (?!Killed|Bus))": (
        "A process that loads data ended without an error of Python. With `num_workers=0` the"
        " program loads in its own process, and its error names the line."
    ),
    r"process in the process pool was terminated abruptly": (
        "A process of the pool ended without an error of Python: `trainmaster logs` has what it"
        " printed last, and after a crash its stacks, below `Fatal Python error`."
    ),
    r"^EOF when reading a line": (
        "A job has no keyboard, and its standard input is empty: take the value from an argument."
    ),
    r"No valid checkpoint found in output directory": (
        "`resume_from_checkpoint=True` needs a checkpoint in the first run, too: pass"
        " `get_last_checkpoint(output_dir)` of `transformers.trainer_utils`, which returns None"
        " from an empty folder."
    ),
}
"""Pattern of the error's message, and of its frame in the next line → advice, with `{requirements}`
for where the job names packages, and the named groups of the pattern.
"""
_INSTALL_FAILURES: Final = {
    r"The user requested \(constraint\) [\w.-]+==": (
        "The runtime's build of this framework drives the VM's accelerator, so no package replaces"
        " it: remove the pin from {requirements}, or request another `runtimeVersion`."
    ),
    r"requires a different Python": (
        "The package excludes the runtime's Python: widen its `python_requires`, or choose another"
        " version of it."
    ),
    r"No matching distribution found for \S*[=<]=?[\d.*]+": (
        "{requirements} pins a version that does not exist for the Python of the runtime, or a name"
        " that does not exist at all: correct the line. The runtime has its framework already."
    ),
    r"No matching distribution found for (?P<name>[\w.-]+)": (
        "The package index has no package {name} for the Python of the runtime: correct its name in"
        " {requirements}."
    ),
    r"Invalid requirement:": "pip cannot read a line of {requirements}: correct it.",
}
"""Pattern of pip's output → advice, with `{requirements}` and the named groups of the pattern."""


def remedy_of_exit(event: ReplicaExited, plan: Plan) -> str:
    """Return what to change in a program that ended like this; empty if nothing is known."""
    if event.cause in (ExitCause.INSTALL, ExitCause.PROCESS) and _has_full_disk(event):
        return _remedy_of_disk(event, plan)
    if event.cause is ExitCause.INSTALL:
        return _remedy_of_installation(event, plan)
    if event.error is None:
        return _remedy_of_usage(event) if event.cause is ExitCause.PROCESS else ""
    return _remedy_of_error(event.error, plan)


def _remedy_of_error(error: ProgramError, plan: Plan) -> str:
    if error.type in _SYNTAX_ERRORS:
        return "Correct the line that the error names: Python cannot read it."
    if error.type == "FileNotFoundError":
        return _remedy_of_file(error.message, plan)
    variable = _NO_RANK.search(error.message)
    if variable:
        return _remedy_of_ranks(variable["name"] or variable["key"], plan)
    text = f"{error.message}\n{error.frame}"
    known = _remedy_of_variable(error) or _advice_from(_PROGRAM_FAILURES, text, plan)
    missing = _NO_MODULE.search(error.message)
    if known or not missing or error.type not in _IMPORT_ERRORS:
        return known or _remedy_of_meaning(error, plan)
    is_hidden = _NOT_A_PACKAGE in error.message
    return _remedy_of_hidden(missing[1]) if is_hidden else _remedy_of_module(missing[1], plan)


def _remedy_of_meaning(error: ProgramError, plan: Plan) -> str:
    """Return what helps against all errors with the same meaning; empty if nothing is known."""
    meaning = meaning_of(error.type, error.message)
    if meaning is Meaning.LOST_PEER and _may_have_ranks(error, plan):
        return PEER_ENDED
    return _remedy_of_memory(error) if meaning is Meaning.OUT_OF_MEMORY else ""


def _may_have_ranks(error: ProgramError, plan: Plan) -> bool:
    """Whether another rank may have ended: a program that runs alone may lose a service, or the
    reader of its output, in the same words.
    """
    is_alone = sum(group.count for group in plan.groups) == 1
    return not is_alone or is_launched(plan.program) or is_of_collective(error)


def _remedy_of_memory(error: ProgramError) -> str:
    of_device = _OF_DEVICE.search(f"{error.type} {error.message}")
    where = "GPU" if of_device else "machine type"
    return (
        "Make the batch, the model or what the program keeps in memory smaller, or choose a"
        f" {where} with more memory."
    )


def _has_full_disk(event: ReplicaExited) -> bool:
    text = event.error.message if event.error else event.tail
    return _DISK_FULL.search(text) is not None


def _remedy_of_disk(event: ReplicaExited, plan: Plan) -> str:
    """Return which disk to enlarge, and to what. A restart in the same VM empties no disk."""
    if _SHARED_MEMORY in (event.error.message if event.error else event.tail):
        return (
            "The shared memory of the VM is full, which is half of its memory: use fewer or smaller"
            " batches in the workers that load data, or a machine with more memory."
        )
    group = plan.group(event.subject.replica_id.task_type)
    elsewhere = "write checkpoints and data below /gcs/BUCKET/, and remove old ones"
    if group.tpu is not None:
        return f"The disk of the TPU VM is full, and its size is fixed: {elsewhere}."
    field = _DISK_FIELDS[plan.origin.dialect][group.task_type]
    larger_gib = min(2 * group.boot_disk_gib, _DISK_GIB_MAX)
    is_largest = larger_gib == group.boot_disk_gib
    larger = "" if is_largest else f"set `bootDiskSizeGb: {larger_gib}` in `{field}`, or "
    return (
        f"The VM's disk of {group.boot_disk_gib} GB is full, and a restart does not empty it:"
        f" {larger}{elsewhere}."
    )


def _remedy_of_variable(error: ProgramError) -> str:
    """Return how a program gets an environment variable; empty for another error."""
    if error.type != "KeyError" or not _READS_VARIABLE.fullmatch(error.frame):
        return ""
    name = error.message.strip("'\"")
    return (
        f"No environment variable {name} is set: set it in `trainmaster.env`, or in"
        " `trainmaster.secrets` if it is one."
    )


def _remedy_of_ranks(variable: str, plan: Plan) -> str:
    """Return how a program gets a variable that launchers set. Which replicas have it:
    docs/interfaces.md, section 3.
    """
    if sum(group.count for group in plan.groups) == 1:
        return (
            "A job of one machine has no ranks unless a launcher sets them: start the program with"
            " torchrun, or ask for each variable in `trainmaster.env`, such as `RANK: $(RANK)`."
        )
    if variable.startswith("LOCAL_"):
        return (
            f"On a machine with several GPUs, a launcher sets {variable}: start the program with"
            " torchrun, which starts one process for each GPU."
        )
    return (
        "Evaluators, parameter servers and independent replicas have no ranks: leave these roles"
        " out, or `independentReplicas`, or let the program run without the variable."
    )


def _remedy_of_installation(event: ReplicaExited, plan: Plan) -> str:
    known = _advice_from(_INSTALL_FAILURES, event.tail, plan)
    if known or not _is_folder(plan):
        return known
    return (
        "Correct requirements.txt in your folder: the error has the words of pip about the line."
        " `trainmaster submit --check` compares it with the runtime."
    )


def _advice_from(failures: Mapping[str, str], text: str, plan: Plan) -> str:
    """Return the advice of the first pattern that the text matches; empty if none does."""
    for pattern, template in failures.items():
        match = re.search(pattern, text)
        if match:
            advice = template.format(requirements=_requirements(plan), **match.groupdict())
            begins_with_value = template.startswith("{")
            return f"{advice[0].upper()}{advice[1:]}" if begins_with_value else advice
    return ""


def _remedy_of_usage(event: ReplicaExited) -> str:
    if event.exit_status not in (_USAGE_STATUS, _NOT_FOUND_STATUS):
        return ""
    unknown = _NOT_ACCEPTED.search(event.tail)
    if unknown:
        return (
            f"The program does not accept the arguments {unknown[1].strip()}: correct them in the"
            " command or in `args`."
        )
    no_program = _NO_PROGRAM.search(event.tail)
    if no_program:
        name = no_program["file"] or no_program["command"]
        if no_program["why"] == _NOT_EXECUTABLE:
            return (
                f"{name} or the program in its first line is not executable: name the program that"
                f" runs it in the command, such as bash {name}."
            )
        return f"Correct the command: {name} is not among the files of the job, or no program."
    return ""


def _remedy_of_file(message: str, plan: Plan) -> str:
    """Return how the job gets a file; empty if the program that wants it may have written it."""
    match = _NO_SUCH_FILE.search(message)
    if match is None:
        return ""
    path = match[1]
    is_gcs_off = plan.access.gcs is GcsFolder.OFF
    if path.startswith("/gcs/") and is_gcs_off:
        return (
            "Buckets are found below /gcs where the job's arguments or variables name a folder"
            " there: set `trainmaster: {gcs: true}` in the job file, or pass the path as an"
            " argument."
        )
    is_absolute = path.startswith("/")
    if is_absolute:  # the program may write there
        return ""
    if path.startswith("gs://"):
        setting = ", and set `trainmaster: {gcs: true}` in the job file" if is_gcs_off else ""
        return (
            "`open` finds no addresses of Cloud Storage: pass it"
            f" /gcs/{path.removeprefix('gs://')} in place of {path}{setting}."
        )
    ways = "add it to your folder" if _is_folder(plan) else "pack it with the program"
    return f"{path} is not on the VM: {ways}, or read it below /gcs/BUCKET/."


def _remedy_of_hidden(module: str) -> str:
    parent = module.rpartition(".")[0]
    return f"Your file {parent}.py hides the package {parent}: give it another name."


def _remedy_of_module(module: str, plan: Plan) -> str:
    """Return how the job gets a module that Python did not find."""
    name, _, suffix = module.rpartition(".")
    if suffix == "py" and name:
        return f"`pythonModule` is a module, and not a file: write {name}."
    top = module.partition(".")[0]
    package = package_of(module)
    where = _requirements(plan)
    runtime = RUNTIMES_WITH.get(top)
    if runtime is not None and plan.program.container is None and not _has_module(plan, top):
        return (
            f"Choose the runtime that has {package}: `--runtime-version {runtime}`. Or add"
            f" {package} to {where}."
        )
    is_namespace = package != package_of(top)  # such as google, which many packages share
    parent, _, missing = module.rpartition(".")
    if parent and not is_namespace:  # otherwise, Python would name the parent
        return (
            f"{parent} was found, and has no module {missing}. If {top} is a library, another"
            f" version of it has the module: name that in {where}. If it is your own, add the file"
            " or correct the name."
        )
    return f"Add {package} to {where}, or add the file if {top} is a module of your own."


def _has_module(plan: Plan, module: str) -> bool:
    """Return whether the runtime names the module's package: `torch==2.13.*`."""
    names = (re.split(r"[=\[<>~]", package, maxsplit=1)[0] for package in plan.image.packages)
    return any(name in (module, f"{module}-cpu") for name in names)


def _requirements(plan: Plan) -> str:
    """Return where the job names the packages that it needs."""
    if plan.program.container is not None:
        return "the container image"
    if _is_folder(plan):
        return "requirements.txt in your folder"
    return "`install_requires` in setup.py"


def _is_folder(plan: Plan) -> bool:
    return plan.program.python_module == FOLDER_MODULE
