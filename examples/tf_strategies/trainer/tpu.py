"""Train a digit classifier with TPUStrategy, on the TPU cores of one Cloud TPU VM.

    python -m trainer.tpu --job-dir gs://BUCKET/tf_tpu

A Cloud TPU VM contains its TPU cores, as other VMs contain GPUs. The program therefore uses the
`local` TPU without a name or address. (On AI Platform Training the program ran on another VM and
found the TPU through TPU_CONFIG.) Without a TPU the program exits with status 2, a permanent
failure; `--any-device` makes it train on the CPU or GPUs instead.
"""

import sys
from typing import Any

import tensorflow as tf

from trainer import digits

STATUS_NO_TPU = 2


def main(argv: list[str] | None = None) -> None:
    """Train, evaluate, store."""
    parser = digits.flags("Train a digit classifier with TPUStrategy.")
    parser.add_argument(
        "--any-device", action="store_true", help="without a TPU, train on the CPU or GPUs"
    )
    options = parser.parse_args(argv)
    strategy = tpu_strategy()
    if strategy is None and not options.any_device:
        print(
            "this VM has no TPU: run the trainer on a Cloud TPU, or with --any-device",
            file=sys.stderr,
            flush=True,
        )
        sys.exit(STATUS_NO_TPU)
    strategy = strategy or tf.distribute.get_strategy()
    cores = strategy.num_replicas_in_sync
    print(f"{type(strategy).__name__} over {cores} cores", flush=True)

    tf.keras.utils.set_random_seed(digits.SEED)
    (images, labels), _ = digits.load()
    global_batch = options.batch_size * cores
    steps = len(labels) // global_batch
    with strategy.scope():
        # More steps per execution mean fewer round trips between the host and the TPU.
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
    """Return the strategy over this VM's TPU cores, or None if it has none."""
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect(tpu="local")
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError, ValueError) as error:
        print(f"TensorFlow finds no TPU: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
        return None
    return tf.distribute.TPUStrategy(resolver)


if __name__ == "__main__":
    main()
