"""Train a digit classifier on one VM, with a strategy that fits its devices.

    python -m trainer.one_vm --strategy mirrored --job-dir gs://BUCKET/tf_mirrored

    mirrored            a copy of the model on each GPU, updated synchronously:
                        the usual choice for several GPUs
    central_storage     variables in the host's memory, computation on each GPU:
                        for very large variables
    one_device          everything on one device: the same program on the smallest machine

A VM without GPUs has one device, its CPU. `--cpu-devices 2` splits it into two logical devices, to
run two replicas on any VM. These strategies do not use TF_CONFIG, which describes the other VMs of
a job.

Each epoch is stored. After a restart, in the same VM or another one, the trainer repeats the
interrupted epoch.
"""

from typing import Any

import tensorflow as tf

from trainer import digits


def main(argv: list[str] | None = None) -> None:
    """Train, evaluate, store."""
    parser = digits.flags("Train a digit classifier on one VM.")
    parser.add_argument("--strategy", choices=sorted(STRATEGIES), default="mirrored")
    parser.add_argument(
        "--cpu-devices", type=int, default=1, help="number of logical devices of the CPU"
    )
    options = parser.parse_args(argv)
    devices = compute_devices(options.cpu_devices)  # before TensorFlow initializes its devices
    tf.keras.utils.set_random_seed(digits.SEED)
    strategy = STRATEGIES[options.strategy](devices)
    replicas = strategy.num_replicas_in_sync
    print(
        f"{options.strategy}: {replicas} of {len(devices)} devices compute: {', '.join(devices)}",
        flush=True,
    )

    (images, labels), _ = digits.load()
    global_batch = options.batch_size * replicas
    with strategy.scope():
        model = digits.compiled_model()
        checkpoints = digits.Checkpoints(model, options.job_dir)
    model.fit(
        digits.endless(images, labels, global_batch),
        initial_epoch=checkpoints.restore(),
        epochs=options.epochs,
        steps_per_epoch=len(labels) // global_batch,
        verbose=0,
        callbacks=[digits.Epochs(options, checkpoints)],
    )
    digits.store_results(model, options.job_dir, strategy=options.strategy, replicas=replicas)


def compute_devices(cpu_devices: int) -> list[str]:
    """Return the names of this VM's GPUs, or of the logical devices of its CPU if there
    are none.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        return [f"GPU:{index}" for index in range(len(gpus))]
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * cpu_devices
    )
    return [f"CPU:{index}" for index in range(cpu_devices)]


def mirrored(devices: list[str]) -> Any:
    """Return the strategy over all devices."""
    return tf.distribute.MirroredStrategy(devices)


def central_storage(devices: list[str]) -> Any:
    """Return the strategy over all devices, with its variables on the host."""
    return tf.distribute.experimental.CentralStorageStrategy(
        compute_devices=devices, parameter_device="CPU:0"
    )


def one_device(devices: list[str]) -> Any:
    """Return the strategy on the first device."""
    return tf.distribute.OneDeviceStrategy(devices[0])


STRATEGIES = {"mirrored": mirrored, "central_storage": central_storage, "one_device": one_device}

if __name__ == "__main__":
    main()
