"""Train a digit classifier with TPUStrategy, on the TPU cores of one Cloud TPU VM.

    python -m trainer.tpu --job-dir gs://BUCKET/tf_tpu

A Cloud TPU VM has its TPU cores inside, as another VM has GPUs: the program asks for `local` ones, with no name and no
address of a TPU. (On AI Platform Training the program ran beside the TPU and found it through TPU_CONFIG.) Where there
are none it says so and ends with status 2, which no restart will mend: `--any-device` trains on what there is instead.
"""

import sys
from typing import Any

import tensorflow as tf

from trainer import digits

STATUS_NO_TPU = 2


def main(argv: list[str] | None = None) -> None:
    """Train, judge, store."""
    parser = digits.flags("Train a digit classifier with TPUStrategy.")
    parser.add_argument("--any-device", action="store_true", help="without a TPU, train on what there is")
    options = parser.parse_args(argv)
    if digits.is_finished(options.job_dir):
        return
    strategy = tpu_strategy()
    if strategy is None and not options.any_device:
        print("this VM has no TPU: run the trainer on a Cloud TPU, or with --any-device", file=sys.stderr, flush=True)
        sys.exit(STATUS_NO_TPU)
    strategy = strategy or tf.distribute.get_strategy()
    cores = strategy.num_replicas_in_sync
    print(f"{type(strategy).__name__} over {cores} cores", flush=True)

    tf.keras.utils.set_random_seed(digits.SEED)
    (images, labels), _ = digits.load()
    global_batch = options.batch_size * cores
    steps = len(labels) // global_batch
    with strategy.scope():
        # A TPU computes while its host feeds it: the more steps in one execution, the less one waits for the other.
        model = digits.compiled_model(steps_per_execution=steps)
        checkpoints = digits.Checkpoints(model, options.job_dir)
    model.fit(
        digits.endless(images, labels, global_batch),
        initial_epoch=checkpoints.restore(),
        epochs=options.epochs,
        steps_per_epoch=steps,
        verbose=0,
        callbacks=[digits.Epochs(options, checkpoints)],
    )
    digits.store_results(model, options.job_dir, strategy="tpu", cores=cores)


def tpu_strategy() -> Any:
    """Return the strategy over this VM's TPU cores; None where it has none."""
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect(tpu="local")
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError, ValueError) as error:
        print(f"TensorFlow finds no TPU: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
        return None
    return tf.distribute.TPUStrategy(resolver)


if __name__ == "__main__":
    main()
