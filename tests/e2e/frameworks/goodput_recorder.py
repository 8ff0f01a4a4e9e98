"""ML Goodput Measurement, after its README.

`slow_input.py` beside it makes each step half a second long, so that a test can end the program
midway.
"""

import os
import sys
from pathlib import Path

from ml_goodput_measurement import goodput
from trainer.slow_input import SAVE_EVERY, STEPS, wait

saved = Path(sys.argv[1], "step")
recorder = goodput.GoodputRecorder(os.environ["CLOUD_ML_JOB_ID"], "goodput", logging_enabled=True)
recorder.record_job_start_time()
recorder.record_tpu_init_start_time()
recorder.record_tpu_init_end_time()
recorder.record_training_preparation_start_time()
recorder.record_training_preparation_end_time()
recorder.record_data_loading_start_time()
recorder.record_data_loading_end_time()
for step in range(int(saved.read_text()) + 1 if saved.exists() else 1, STEPS + 1):
    recorder.record_step_start_time(step)
    wait()
    print(f"step {step}/{STEPS} loss {1 / step:.4f}", flush=True)
    if step % SAVE_EVERY == 0:
        saved.write_text(str(step))
recorder.record_job_end_time()
recorder.flush()
