"""The table of types: what an exception of a type means if no pattern matches its message.

`TYPES` has single types, without their modules, and `NAMES` what the name of any other type says.
Each row names where its words come from, so that a newer version of a library can be compared with
it.
"""

from __future__ import annotations

import re

from trainmaster.program_errors.rows import Meaning, Row

_BUG = Meaning.BUG
_SETTING = Meaning.SETTING
_MEMORY = Meaning.OUT_OF_MEMORY
_LOST = Meaning.LOST_PEER
_SILENT = Meaning.SILENT_PEER
_TRANSIENT = Meaning.TRANSIENT


def _types(
    meaning: Meaning, runtime: str, source: str, names: str, *, of_accelerator: bool = False
) -> dict[str, Row]:
    row = Row(meaning, runtime, source, is_of_accelerator=of_accelerator)
    return dict.fromkeys(names.split(), row)


TYPES: dict[str, Row] = {
    **_types(
        _BUG,
        "Python",
        "docs.python.org: exceptions that only code raises about itself",
        "NameError UnboundLocalError AttributeError TypeError KeyError IndexError LookupError"
        " ZeroDivisionError OverflowError AssertionError RecursionError NotImplementedError"
        " ImportError ModuleNotFoundError SyntaxError IndentationError TabError UnicodeDecodeError"
        " UnicodeEncodeError ValueError FloatingPointError BufferError PicklingError",
    ),
    **_types(
        _BUG,
        "TensorFlow",
        "tf.errors: a wrong argument, and an operation that does not exist",
        "InvalidArgumentError UnimplementedError",
    ),
    **_types(
        _SETTING,
        "Python",
        "docs.python.org: subclasses of OSError about one path",
        "FileNotFoundError NotADirectoryError IsADirectoryError PermissionError FileExistsError"
        " SSLCertVerificationError",
    ),
    **_types(
        _SETTING,
        "Google Cloud, hubs",
        "google.api_core, google.auth, tf.errors, huggingface_hub, botocore",
        "NotFound Forbidden PermissionDenied Unauthenticated Unauthorized BadRequest"
        " DefaultCredentialsError NotFoundError PermissionDeniedError UnauthenticatedError"
        " RepositoryNotFoundError GatedRepoError EntryNotFoundError RevisionNotFoundError"
        " HFValidationError NoCredentialsError NoSuchBucket NoSuchKey UsageError",
    ),
    **_types(
        _MEMORY,
        "Python, PyTorch",
        "docs.python.org, torch",
        "MemoryError OutOfMemoryError",
    ),
    **_types(
        _LOST,
        "TensorFlow, PyTorch, sockets",
        "tf.errors, torch.distributed. Measured: UnavailableError, AbortedError,"
        " RendezvousConnectionError",
        "UnavailableError AbortedError CancelledError DeadlineExceededError DistBackendError"
        " DistNetworkError DistStoreError RendezvousConnectionError ConnectionError"
        " ConnectionResetError ConnectionRefusedError BrokenPipeError",
    ),
    **_types(
        _TRANSIENT,
        "Python",
        "docs.python.org: operating system, sockets, child processes",
        "BlockingIOError ChildProcessError InterruptedError ProcessLookupError TimeoutError"
        " ConnectionAbortedError gaierror herror timeout SSLEOFError SSLZeroReturnError"
        " IncompleteRead RemoteDisconnected BadStatusLine URLError HTTPError ContentTooShortError"
        " CalledProcessError TimeoutExpired"
        " BrokenProcessPool",
    ),
    **_types(
        _TRANSIENT,
        "requests, urllib3, httplib2, aiohttp, httpx",
        "their modules of exceptions",
        "Timeout ReadTimeout ConnectTimeout ReadTimeoutError ConnectTimeoutError"
        " NewConnectionError NameResolutionError MaxRetryError ProtocolError ChunkedEncodingError"
        " ProxyError RequestException ServerNotFoundError ClientError ClientConnectorError"
        " ClientOSError ServerDisconnectedError ClientPayloadError ConnectError ReadError"
        " RemoteProtocolError PoolTimeout HTTPStatusError HfHubHTTPError",
    ),
    **_types(
        _TRANSIENT,
        "Google Cloud, gRPC",
        "google.auth, google.api_core, googleapiclient, gcsfs, grpc",
        "TransportError RetryError GoogleAPICallError HttpError HttpRequestError"
        " Aborted BadGateway Cancelled DataLoss DeadlineExceeded GatewayTimeout"
        " InternalServerError PreconditionFailed ResourceExhausted ServerError ServiceUnavailable"
        " TooManyRequests Unknown RpcError InactiveRpcError _InactiveRpcError AioRpcError"
        " _MultiThreadedRendezvous",
    ),
    **_types(
        _TRANSIENT,
        "TensorFlow",
        "tf.errors: what a service or a file system reports",
        "ResourceExhaustedError UnknownError",
    ),
    **_types(
        _TRANSIENT,
        "TensorFlow, PyTorch, JAX, NCCL",
        "tf.errors, torch, jaxlib, cupy: what a device reports",
        "InternalError AcceleratorError CudaError CUDAError DeferredCudaCallError NCCLError"
        " NcclError XlaRuntimeError JaxRuntimeError",
        of_accelerator=True,
    ),
    **_types(
        _TRANSIENT,
        "launchers",
        "torch.distributed.elastic, torch.multiprocessing, horovod",
        "DistError HorovodInternalError RendezvousError ChildFailedError ProcessExitedException"
        " ProcessRaisedException",
    ),
    **_types(
        _SILENT,
        "torchrun",
        "torch/distributed/elastic/rendezvous/api.py",
        "RendezvousTimeoutError RendezvousClosedError",
    ),
}

NAMES: tuple[Row, ...] = (
    Row(
        _LOST,
        "Ray, Dask and others",
        "ray/exceptions.py, distributed/scheduler.py",
        re.compile(
            r"(?:Worker|Actor|Node|Owner|Object)(?:Died|Dead|Lost|Crashed|Killed)"
            r"|^(?:RayActorError|KilledWorker)$"
        ),
    ),
    Row(
        _TRANSIENT,
        "clients of services",
        "botocore, aiohttp, fsspec, wandb: modules of exceptions",
        re.compile(
            r"Timeout(?:Error|Expired)?$|TimedOut|Unavailable|Disconnected|Throttl|Stalled"
            r"|RateLimit|TooManyRequests|Connection(?:Closed|Reset|Aborted|Lost|Refused)"
            r"|^(?:Endpoint|Client)ConnectionError$"
        ),
    ),
)
"""Types that a library names after a fault that may pass: their patterns match the type's name."""
