"""Repetition: whether two exits in a row prove a bug in the job's own code (rule 8).

Everything else is left to the budgets: an error of a network, a storage, a quota or a device may be
gone at the next restart, and a program that trained for a while may have saved a checkpoint, which
the control plane cannot see.
"""

from __future__ import annotations

import re
from typing import Final

from trainmaster.core.events import ProgramError, ReplicaExited
from trainmaster.core.model.exit_policy import code_of
from trainmaster.core.rules.evidence import is_own_failure
from trainmaster.core.timeouts import QUICK_FAILURE_MAX_S

TRANSIENT_TYPES: Final = frozenset(
    (
        # Python: the operating system, files, sockets, child processes
        "OSError",
        "IOError",
        "EnvironmentError",
        "EOFError",
        "MemoryError",
        "BlockingIOError",
        "ChildProcessError",
        "FileExistsError",
        "FileNotFoundError",
        "InterruptedError",
        "IsADirectoryError",
        "NotADirectoryError",
        "PermissionError",
        "ProcessLookupError",
        "TimeoutError",
        "ConnectionError",
        "BrokenPipeError",
        "ConnectionAbortedError",
        "ConnectionRefusedError",
        "ConnectionResetError",
        "gaierror",
        "herror",
        "timeout",
        "SSLError",
        "SSLEOFError",
        "SSLZeroReturnError",
        "IncompleteRead",
        "RemoteDisconnected",
        "BadStatusLine",
        "URLError",
        "HTTPError",
        "ContentTooShortError",
        "CalledProcessError",
        "TimeoutExpired",
        "BrokenProcessPool",
        # requests, urllib3, httplib2, aiohttp
        "Timeout",
        "ReadTimeout",
        "ConnectTimeout",
        "ReadTimeoutError",
        "ConnectTimeoutError",
        "NewConnectionError",
        "NameResolutionError",
        "MaxRetryError",
        "ProtocolError",
        "ChunkedEncodingError",
        "ProxyError",
        "RequestException",
        "ServerNotFoundError",
        "ClientError",
        "ClientConnectorError",
        "ClientOSError",
        "ServerDisconnectedError",
        # google.auth, google.api_core, googleapiclient, gcsfs
        "TransportError",
        "RefreshError",
        "DefaultCredentialsError",
        "RetryError",
        "GoogleAPICallError",
        "HttpError",
        "HttpRequestError",
        "Aborted",
        "BadGateway",
        "Cancelled",
        "DataLoss",
        "DeadlineExceeded",
        "Forbidden",
        "GatewayTimeout",
        "InternalServerError",
        "NotFound",
        "PermissionDenied",
        "PreconditionFailed",
        "ResourceExhausted",
        "ServerError",
        "ServiceUnavailable",
        "TooManyRequests",
        "Unauthenticated",
        "Unauthorized",
        "Unknown",
        "RpcError",
        "InactiveRpcError",
        "_InactiveRpcError",
        "_MultiThreadedRendezvous",
        # TensorFlow
        "AbortedError",
        "CancelledError",
        "DataLossError",
        "DeadlineExceededError",
        "FailedPreconditionError",
        "InternalError",
        "NotFoundError",
        "PermissionDeniedError",
        "ResourceExhaustedError",
        "UnauthenticatedError",
        "UnavailableError",
        "UnknownError",
        # torch, JAX, NCCL, MPI
        "AcceleratorError",
        "CudaError",
        "CUDAError",
        "DeferredCudaCallError",
        "DistBackendError",
        "DistError",
        "DistNetworkError",
        "DistStoreError",
        "HorovodInternalError",
        "JaxRuntimeError",
        "NCCLError",
        "NcclError",
        "OutOfMemoryError",
        "RendezvousConnectionError",
        "RendezvousError",
        "RendezvousTimeoutError",
        "XlaRuntimeError",
        "ChildFailedError",
        "ProcessExitedException",
        "ProcessRaisedException",
    )
)
"""Exceptions, without their modules, that report a network, a storage, a quota or a device.

They never prove a bug.
"""

TRANSIENT_WORDS: Final = re.compile(
    r"\b(?:429|50[234]|cublas|cuda|cudnn|cufft|ecc|gloo|nccl|nvml|xid|mpi|rpc|dns|quota|rate"
    r" limit|throttled"
    r"|timed? ?out|temporarily|try again|too many|unavailable|unreachable|connection|network"
    r"|socket|broken pipe|hardware|device)",
    re.IGNORECASE,
)
"""Words in the message of such an error, whatever its type: torch reports CUDA, NCCL and ECC errors
as RuntimeError.
"""

_NUMBERS: Final = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def is_quick_failure(event: ReplicaExited) -> bool:
    """Whether the program failed so soon after its start that it made no progress.

    Unknown times are not quick.
    """
    return not event.succeeded and event.ran_s is not None and event.ran_s < QUICK_FAILURE_MAX_S


def bug_signature(event: ReplicaExited) -> str | None:
    """Return what a repetition of this exit would have in common with it; None if a repetition
    would prove no bug.
    """
    error = event.error
    if (
        error is None
        or not error.own_frame
        or not is_quick_failure(event)
        or not is_own_failure(event)
    ):
        return None
    if is_transient(error):
        return None
    code = code_of(event.exit_status, event.signal)
    return f"{code}, {error.type}: {_NUMBERS.sub('#', error.message)} at {error.own_frame}"


def is_transient(error: ProgramError) -> bool:
    """Whether the error, or one that it was raised from, reports a network, a storage, a quota or a
    device.
    """
    is_type = any(
        name.rpartition(".")[2] in TRANSIENT_TYPES for name in (error.type, *error.causes)
    )
    return is_type or TRANSIENT_WORDS.search(error.message) is not None
