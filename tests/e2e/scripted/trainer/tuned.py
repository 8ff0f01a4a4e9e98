"""A trainer for tests of tuning, without a framework: its metric is a function of its flags.

It reports in the format of cloudml-hypertune: one JSON object per line, numbers as strings, in the
file that the environment names. With `--summaries` it writes an event file of TensorFlow's
summaries to its job directory instead.
"""

import argparse
import json
import os
import struct
import time
from pathlib import Path

# Wire types of protocol buffers.
VARINT, DOUBLE, LENGTH_DELIMITED, FLOAT = 0, 1, 2, 5


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--depth", type=int, required=True)
    parser.add_argument("--fail-at-depth", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument(
        "--hang-at-depth", type=int, default=0, help="wait for ten minutes after the first report"
    )
    parser.add_argument("--summaries", action="store_true")
    parser.add_argument("--job-dir", default="")
    options = parser.parse_args()
    trial = os.environ["CLOUD_ML_TRIAL_ID"]
    assert json.loads(os.environ["TF_CONFIG"])["task"]["trial"] == trial
    print(f"trial {trial} of {os.environ['CLOUD_ML_JOB_ID']} in {options.job_dir}", flush=True)
    time.sleep(options.seconds)
    if options.depth == options.fail_at_depth:
        raise SystemExit(2)
    report = Path(os.environ["CLOUD_ML_HP_METRIC_FILE"])
    tag = os.environ["CLOUD_ML_HP_METRIC_TAG"]
    lines = []
    events = record(b"")
    for step in (1, 2, 3):
        score = step / 3 * (options.depth - abs(options.rate - 0.5))
        lines.append(
            {tag: str(score), "global_step": str(step), "timestamp": time.time(), "trial": trial}
        )
        if options.summaries:
            events += record(scalar_event(step, tag.encode(), score))
            upload(f"{options.job_dir}/train/events.out.tfevents.1.host", events)
        else:
            report.write_text("".join(f"{json.dumps(line, sort_keys=True)}\n" for line in lines))
        print(f"{tag} {score} at step {step}", flush=True)
        if options.depth == options.hang_at_depth:
            time.sleep(600)


def scalar_event(step: int, tag: bytes, value: float) -> bytes:
    """Return TensorFlow's protocol buffer Event, whose summary has one scalar value.

    The step and all lengths are below 128, so each of them is one byte.
    """
    scalar = length_delimited(1, tag) + key(2, FLOAT) + struct.pack("<f", value)
    summary = length_delimited(1, scalar)
    wall_time = key(1, DOUBLE) + struct.pack("<d", time.time())
    return wall_time + key(2, VARINT) + bytes([step]) + length_delimited(5, summary)


def length_delimited(field: int, content: bytes) -> bytes:
    """Return a field of a protocol buffer that is a text or another message."""
    return key(field, LENGTH_DELIMITED) + bytes([len(content)]) + content


def key(field: int, wire_type: int) -> bytes:
    """Return the byte that a field of a protocol buffer begins with."""
    return bytes([field << 3 | wire_type])


def record(message: bytes) -> bytes:
    """Return the message as a record of an event file, in TensorFlow's format TFRecord."""
    length = struct.pack("<Q", len(message))
    return length + checksum(length) + message + checksum(message)


def checksum(data: bytes) -> bytes:
    """Return the masked CRC-32C of TFRecord."""
    import google_crc32c

    crc = google_crc32c.value(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def upload(uri: str, content: bytes) -> None:
    from google.cloud import storage

    bucket, _, name = uri.removeprefix("gs://").partition("/")
    storage.Client().bucket(bucket).blob(name).upload_from_string(content)


if __name__ == "__main__":
    main()
