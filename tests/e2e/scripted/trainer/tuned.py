"""A trainer for tests of tuning, without a framework: its metric is a function of its flags.

It reports in the format of cloudml-hypertune: one JSON object per line, numbers as strings, in the file that the
environment names.
"""

import argparse
import json
import os
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--depth", type=int, required=True)
    parser.add_argument("--fail-at-depth", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--hang-at-depth", type=int, default=0, help="wait for long after the first report")
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
    for step in (1, 2, 3):
        score = step / 3 * (options.depth - abs(options.rate - 0.5))
        lines.append({tag: str(score), "global_step": str(step), "timestamp": time.time(), "trial": trial})
        report.write_text("".join(f"{json.dumps(line, sort_keys=True)}\n" for line in lines))
        print(f"{tag} {score} at step {step}", flush=True)
        if options.depth == options.hang_at_depth:
            time.sleep(600)


if __name__ == "__main__":
    main()
