"""The table of messages: patterns, with what an error means whose message matches.

`ROWS` is read from the top, and the first pattern that matches the message decides. Each row names
where its words come from, so that a newer version of a library can be compared with it.
"""

from __future__ import annotations

import re

from trainmaster.program_errors.rows import Meaning, Row


def _row(
    meaning: Meaning,
    runtime: str,
    source: str,
    words: tuple[str, ...],
    *,
    types: tuple[str, ...] = (),
    of_accelerator: bool = False,
    of_peers: bool = False,
) -> Row:
    """Return a row whose pattern is any of these regular expressions, in any case.

    `runtime`: the library that prints the words. `source`: where they come from. `types`: only
    errors of these types; empty: all. `of_accelerator`, `of_peers`: fields of `Row`.
    """
    pattern = re.compile("|".join(words), re.IGNORECASE)
    return Row(meaning, runtime, source, pattern, types, of_accelerator, of_peers)


_BUG = Meaning.BUG
_SETTING = Meaning.SETTING
_MEMORY = Meaning.OUT_OF_MEMORY
_LOST = Meaning.LOST_PEER
_SILENT = Meaning.SILENT_PEER
_TRANSIENT = Meaning.TRANSIENT

# A status of HTTP in the words of one library or another: `HTTP Error 404: Not Found`,
# `404 Client Error`, `<HttpError 404 when requesting`, `404, message='Not Found'`,
# `404 GET https://`.
_HTTP = (
    r"(?:\bHTTP Error {0}\b|\b{0} (?:Client|Server) Error\b|<HttpError {0}\b|\b{0}, message="
    r"|^{0} (?:GET|POST|PUT|DELETE|PATCH)\b|\bstatus(?:[ _]code)?\W{{0,3}}{0}\b|\(HTTP {0}\))"
)

ROWS: tuple[Row, ...] = (
    # Peers that were started again, in the words of a bug
    _row(
        _LOST,
        "JAX, TensorFlow",
        "xla/tsl/distributed_runtime/coordination",
        (
            r"service might have restarted|coordination service has stopped|different incarnation",
            r"service is shutting down|worker has restarted|has likely restarted",
        ),
    ),
    # A device that the previous program has not released yet, in the words of a setting
    _row(_TRANSIENT, "TPU", "libtpu: EBUSY", (r"device or resource busy",), of_accelerator=True),
    # Bugs and lasting settings whose messages have words that rows below excuse.
    _row(
        _BUG,
        "NCCL",
        "nccl.h: ncclInvalidUsage and ncclInvalidArgument; horovod/common/ops/nccl_operations.cc",
        (r"ncclinvalid(?:usage|argument)|nccl\w{0,40} failed: invalid",),
    ),
    _row(
        _BUG,
        "gRPC",
        "grpc.StatusCode",
        (r"statuscode\.(?:invalid_argument|out_of_range)",),
    ),
    _row(
        _SETTING,
        "gRPC",
        "grpc.StatusCode",
        (r"statuscode\.(?:not_found|permission_denied|unauthenticated|unimplemented)",),
    ),
    _row(
        _BUG,
        "PyTorch",
        "torch/_subclasses, aten/src/ATen: checks of devices and types of tensors",
        (
            r"expected all tensors to be on the same device",
            r"should be the same (?:type|device)|(?:input|weight) type .* should be the same",
            r"tensors? (?:is|are|was|were) on (?:different|cpu|cuda)",
            r"(?:device-side assert triggered|CUDA_ERROR_ASSERT|cudaErrorAssert)",
            r"expected (?:a |an )?'?(?:cuda|cpu)'? device",
            r"no \w+ kernel .*(?:registered|found)|not implemented for '\w+'",
            r"default process group has not been initialized",
            r"(?:group|backend) .* (?:not supported|invalid|unknown)",
            r"invalid (?:rank|backend|device)",
            r"cannot pin|cannot re-initialize cuda in forked subprocess",
            r"expected .* parameter.*|did not receive grad|unused parameters",
        ),
        types=("RuntimeError", "NotImplementedError", "AcceleratorError", "DistBackendError"),
    ),
    _row(
        _BUG,
        "JAX",
        "absl::StatusCode, at the begin of the message",
        (r"^(?:invalid_argument|unimplemented|out_of_range): ",),
        types=("XlaRuntimeError", "JaxRuntimeError"),
    ),
    _row(
        _SETTING,
        "PyTorch",
        "torch/cuda/__init__.py, c10/cuda: builds and drivers",
        (
            r"torch not compiled with cuda enabled",
            r"found no nvidia driver|no cuda (?:gpus|devices?) (?:are|is) (?:available|detected)",
            r"cuda driver version is insufficient|no cuda-capable device is detected",
            r"invalid device ordinal|no kernel image is available for execution",
            r"the nvidia driver on your system is too old",
            r"attempting to deserialize object on a cuda device",
            r"distributed package doesn'?t have (?:nccl|mpi|ucc)(?: built in)?",
            r"processgroupnccl is only supported with gpus, no gpus found",
        ),
    ),
    _row(
        _SETTING,
        "JAX",
        "jax/_src/xla_bridge.py",
        (r"unable to initialize backend|no (?:gpu|tpu)s? found|unknown backend",),
    ),
    # Memory
    _row(
        _MEMORY,
        "PyTorch, TensorFlow, JAX, NumPy",
        "c10/cuda/CUDACachingAllocator, tensorflow BFC allocator, XLA, numpy.core._exceptions",
        (
            r"(?:cuda|hip|xpu|mps)(?: backend| error:)? out of memory",
            r"out of memory (?:while|allocating|trying)",
            r"oom when allocating|failed to allocate (?:request|memory)|ran out of memory",
            r"resource_exhausted: .*(?:memory|hbm|vmem|allocat)",
            r"unable to allocate .* for an array|can'?t allocate memory|cannot allocate memory",
            r"cublas_status_alloc_failed|cudaerrormemoryallocation|attempting to reserve .* hbm",
            r"std::bad_alloc|dataloader worker .* killed by signal: (?:killed|bus error)",
        ),
    ),
    # Peers that do not answer
    _row(
        _SILENT,
        "TensorFlow, JAX",
        "tsl/distributed_runtime/coordination",
        (
            r"stopped sending heartbeats|heartbeat timeout|coordinationservice/heartbeat",
            r"deadline_exceeded: |collective has timed out",
            r"(?:barrier|the cluster)\b.{0,40}tim(?:ed |e)out|timeout waiting for the cluster",
        ),
    ),
    _row(
        _SILENT,
        "gloo",
        "gloo/transport/tcp/unbound_buffer.cc",
        (r"for recv operation|for send operation|monitoredbarrier",),
    ),
    _row(
        _SILENT,
        "NCCL",
        "torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp: the watchdog",
        (r"collective operation timeout",),
    ),
    _row(
        _SILENT,
        "PyTorch",
        "torch/distributed: stores of a group that is formed",
        (
            r"waiting for (?:clients|workers)|wait timeout after",
            r"timed out initializing process group",
            r"store[_ ]based[_ ]barrier|^socket timeout$",
        ),
    ),
    # Peers that are lost
    _row(
        _LOST,
        "JAX",
        "jaxlib: the messages begin with the code of absl::Status",
        (
            r"^(?:unavailable|aborted|cancelled): ",
            r"jax distributed service detected fatal errors",
        ),
    ),
    # Peers speak no HTTP: this is a service.
    _row(
        _TRANSIENT,
        "urllib3, requests",
        "urllib3/connectionpool.py: the pool's name begins the message, or its cause",
        (
            r"https?connectionpool\(.*\bconnection (?:refused|reset|aborted)",
            r"https?connectionpool\(.*\b(?:failed to establish|remote end closed|broken pipe)",
        ),
        types=("ConnectionError", "MaxRetryError", "NewConnectionError", "ProtocolError"),
    ),
    _row(
        _LOST,
        "gloo",
        "gloo/transport/tcp/pair.cc",
        (
            r"connection closed|connection reset by peer|connection refused|socket closed",
            r"broken pipe|the other end is likely closed|poll error condition",
            r"caused pair closure",
        ),
    ),
    _row(
        _LOST,
        "XGBoost",
        "src/collective, and rabit in older versions; measured",
        (
            r"hung up on the other end|connection reset|socket (?:recv|send) failed",
            r"/collective/result\.cc|rabit/(?:include|internal)|allreduce failed|\btracker\.cc",
        ),
        types=("XGBoostError",),
    ),
    _row(_LOST, "XGBoost", "xgboost/dask/__init__.py", (r"missing required workers",)),
    _row(
        _LOST,
        "PyTorch",
        "torch/csrc/distributed/c10d/socket.cpp",
        (
            r"connect\(\) timed out|client socket has (?:timed out|failed to connect)",
            r"connectfullmesh failed|failed to connect to any network address",
        ),
    ),
    _row(
        _LOST,
        "NCCL",
        "nccl.h: ncclRemoteError",
        (r"remote process exited or there was a network error|ncclremoteerror",),
    ),
    _row(
        _LOST,
        "Horovod",
        "horovod/common/operations.cc",
        (r"horovod has been shut down|ncclcomminitrank failed: unhandled system error",),
    ),
    _row(
        _LOST,
        "TensorFlow",
        "tensorflow/core/common_runtime: collectives of a cluster that was started again",
        (r"collective ops is aborted by",),
    ),
    _row(
        _LOST,
        "Ray",
        "ray/exceptions.py",
        (
            r"the actor is dead because its node has died|worker \d+ died|died unexpectedly",
            r"due to node failure",
        ),
    ),
    _row(_SILENT, "Ray", "src/ray/core_worker", (r"get timed out: some object",)),
    _row(_LOST, "MPI", "MPI 4.1, fault tolerance", (r"mpi_err_proc_failed",)),
    # The name of a member resolves only while its VM exists. Peers speak no HTTP: a name that a
    # client of a service cannot resolve stays a setting.
    _row(
        _LOST,
        "the resolver",
        "netdb.h: EAI_NONAME and EAI_NODATA; torch/csrc/distributed/c10d/socket.cpp",
        (r"name or service not known|no address associated with hostname|\[errno -(?:2|5)\]",),
        types=("gaierror", "DistNetworkError", "DistStoreError", "RuntimeError", "ValueError"),
        of_peers=True,
    ),
    # TensorFlow's file systems
    _row(
        _SETTING,
        "TensorFlow",
        "tensorflow/core/platform/cloud",
        (r"http response code 40[0134]",),
    ),
    _row(
        _TRANSIENT,
        "TensorFlow",
        "tensorflow/core/platform/cloud: libcurl, retries",
        (r"error executing an http request|\d retry attempts failed",),
        types=("AbortedError", "UnavailableError", "FailedPreconditionError", "InternalError"),
    ),
    # Settings that last: files, names, permissions
    _row(
        _SETTING,
        "the operating system",
        "errno: ENOENT, EACCES, EPERM, ENOTDIR, EISDIR, ENOSPC, EROFS, EDQUOT",
        (
            r"\[errno (?:1|2|13|17|20|21|28|30|36|122)\]|no such file or directory",
            r"no space left on device|read-only file system|disk quota exceeded|permission denied",
        ),
    ),
    _row(
        _SETTING,
        "the resolver",
        "netdb.h: EAI_NONAME and EAI_NODATA; EAI_AGAIN is transient",
        (
            r"unknown url type|no host (?:given|supplied|specified)",
            r"name or service not known|nodename nor servname|no address associated with hostname",
            r"\[errno -(?:2|5)\]",
        ),
    ),
    _row(
        _SETTING,
        "Google Cloud",
        "messages of Cloud Storage and IAM",
        (
            r"specified bucket does not exist|the specified key does not exist|no such object",
            r"does not have \S+ access|permission '?\S+'? denied|could not automatically determine",
            r"default credentials were not found|(?:has not been used in|is disabled in) project",
            r"invalid_grant|invalid_client|unauthorized_client",
            r"billing account .* (?:disabled|closed)",
        ),
    ),
    _row(
        _SETTING,
        "Amazon S3 and what speaks its protocol",
        "botocore: the code of the error",
        (
            r"\((?:NoSuchBucket|NoSuchKey|AccessDenied|40[0134])\)",
            r"\((?:InvalidAccessKeyId|SignatureDoesNotMatch)\)",
        ),
    ),
    _row(
        _SETTING,
        "HTTP",
        "RFC 9110: 400, 401, 403, 404, 405, 410",
        (*[_HTTP.format(status) for status in (400, 401, 403, 404, 405, 410)],),
    ),
    _row(
        _SETTING,
        "hubs and trackers",
        "huggingface_hub, transformers, wandb: messages about names and keys",
        (
            r"is not a (?:valid model identifier|local folder)|repository not found|gated repo",
            r"entry not found|revision not found|api[_ ]key (?:not configured|is missing|invalid)",
            r"invalid (?:api key|token|credentials|username or (?:token|password))",
            r"couldn'?t find .* (?:dataset|on the hugging ?face hub)|doesn'?t exist on the hub",
        ),
    ),
    _row(
        _SETTING,
        "certificates",
        "OpenSSL",
        (r"certificate verify failed|self[- ]signed certificate|no certificate for the peer",),
    ),
    _row(
        _SETTING,
        "child processes",
        "POSIX: statuses of a usage error, of a file that cannot be executed, and of none",
        (r"returned non-zero exit status (?:2|126|127)\b",),
        types=("CalledProcessError",),
    ),
    # What may pass
    _row(
        _TRANSIENT,
        "torchrun",
        "torch/distributed/elastic/multiprocessing/api.py: its VM is about to stop",
        (r"process \d+ got signal",),
        types=("SignalException",),
    ),
    _row(
        _TRANSIENT,
        "CUDA, cuDNN, cuBLAS, NCCL, ROCm",
        "c10/cuda/CUDAException.cpp, ATen/cuda/Exceptions.h, NCCLUtils.hpp, XLA's stream executor",
        (
            r"\b(?:cuda|hip)(?: \w+)? error\b|cuda runtime error|\bcu_?error|cudaerror\w+",
            r"\bcuda_error_\w+|\bcu(?:dnn|blas|fft|solver|sparse)(?: (?:internal )?error|_status_)",
            r"\bmiopen ?(?:error|status)|\bncclsystemerror|\bnccl\w{0,40}error|\bnccl error",
            r"\b(?:ecc error|uncorrectable ecc|xid \d+|nvml(?:error| error)|driver shutting down)",
            r"unspecified launch failure|illegal memory access|misaligned address",
            r"(?:gpu|device|tpu) (?:is|was|has been) (?:lost|removed|reset)",
            r"hardware (?:error|failure)",
            r"blas xgemm\w* launch failed|failed to (?:launch|enqueue)|failed copying input tensor",
            r"failed to (?:get convolution algorithm|create cu\w+ handle|initialize (?:tpu|nvml))",
        ),
        of_accelerator=True,
    ),
    _row(
        _TRANSIENT,
        "HTTP",
        "RFC 9110 and 6585: 408, 425, 429 and 5xx",
        (
            *[_HTTP.format(status) for status in ("408", "425", "429", r"5\d\d")],
            r"\b(?:too many requests|internal server error|bad gateway|gateway time-?out)\b",
            r"\b(?:rate limit|slow ?down|throttl)",
        ),
    ),
    _row(
        _TRANSIENT,
        "services",
        "google.api_core, grpc, botocore, huggingface_hub: what services say of themselves",
        (
            r"service (?:is )?(?:currently |temporarily )?unavailable|statuscode\.unavailable",
            r"\b50[234] |temporary (?:failure|error)|temporarily",
            r"(?:please|and) try again|try again later",
            r"quota exceeded|exceeded quota|resource exhausted",
            r"deadline exceeded|backend error|server (?:is )?(?:overloaded|busy|disconnected)",
            r"couldn'?t (?:connect|reach|communicate)|could not (?:connect|reach|resolve)",
            r"connection error|error communicating with|compute engine ?metadata service",
            r"did not complete within|after \d+ (?:tries|attempts|retries)|transfer rate remained",
            r"(?:md5|crc32c|checksum)\b.{0,20}(?:failed|mismatch)",
        ),
    ),
    _row(
        _TRANSIENT,
        "the network",
        "errno, resolver, http.client, requests, urllib3, aiohttp",
        (
            r"address already in use|eaddrinuse|\[errno 98\]",
            r"\btimed out\b",
            r"timeout (?:waiting|while|connecting|exceeded|after|error|expired|to host)",
            r"(?:connection|connect|read|write|request|gateway|socket) timeout",
            r"(?:network|host) is (?:down|unreachable)|no route to host",
            r"connection (?:aborted|lost|was closed|broken)|cannot connect to host",
            r"failed to (?:connect|establish)|max retries exceeded|remote end closed",
            r"incompleteread|unexpected_eof|eof occurred in violation of protocol|bad record mac",
            r"\[errno (?:5|11|16|32|101|103|104|110|111|112|113|116|-3)\]|input/output error",
            r"stale file handle|transport endpoint is not connected|device or resource busy",
        ),
    ),
)
