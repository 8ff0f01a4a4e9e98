"""Train a digit classifier with ParameterServerStrategy: variables on the parameter servers, steps on any free worker.

    python -m trainer.parameter_server --job-dir gs://BUCKET/tf_parameter_server

Every replica runs this module. The chief holds the ClusterCoordinator and hands out steps; workers and parameter
servers only serve, until the platform ends them: the job is over when the chief exits 0. What happens to a lost

    worker              its steps go to the others, and new ones to it when it is back: nobody else ends
    parameter server    its variables are gone: the chief ends with status 1, and goes on from the last checkpoint
    chief               its next life goes on from the last checkpoint, with the servers as they are

Parameter servers write their own parts of a checkpoint, so the job directory has to be one that all of them see.
"""

import argparse
import os
import socket
import time
from typing import Any

import tensorflow as tf

from trainer import digits

CONNECT_WAIT_S = 1.0


def main(argv: list[str] | None = None) -> None:
    """Serve or coordinate, as TF_CONFIG says."""
    parser = digits.flags("Train a digit classifier with ParameterServerStrategy.")
    options = parser.parse_args(argv)
    tf.get_logger().setLevel("ERROR")  # each save is traced anew, and warned of
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
    if cluster.task_type in ("worker", "ps"):
        serve(cluster)
    elif not digits.is_finished(options.job_dir):
        wait_for_servers(cluster)
        coordinate(options, cluster)


def serve(cluster: Any) -> None:
    """Hold variables or take steps for the chief, and never return."""
    os.environ["GRPC_FAIL_FAST"] = "use_caller"  # wait for a server that is being restarted instead of giving up
    server = tf.distribute.Server(
        cluster.cluster_spec(), job_name=cluster.task_type, task_index=cluster.task_id, protocol=cluster.rpc_layer
    )
    print(f"{cluster.task_type} {cluster.task_id} serves", flush=True)
    server.join()


def wait_for_servers(cluster: Any) -> None:
    """Return when all of them have been seen: the coordinator itself waits for none that is late, as a new VM is."""
    spec = cluster.cluster_spec().as_dict()
    for address in [*spec.get("ps", []), *spec.get("worker", [])]:
        host, _, port = address.rpartition(":")
        while True:
            try:
                socket.create_connection((host, int(port)), timeout=CONNECT_WAIT_S).close()
                break
            except OSError:
                time.sleep(CONNECT_WAIT_S)


def coordinate(options: argparse.Namespace, cluster: Any) -> None:
    """Train, judge, store."""
    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    (images, labels), _ = digits.load()
    with strategy.scope():
        model = digits.compiled_model()
        checkpoints = digits.Checkpoints(model, options.job_dir)
    epochs_done = checkpoints.restore()
    batches = iter(coordinator.create_per_worker_dataset(lambda: digits.endless(images, labels, options.batch_size)))
    step = training_step(strategy, model)
    for epoch in range(epochs_done, options.epochs):
        started_s = time.monotonic()
        losses = [coordinator.schedule(step, args=(batches,)) for _ in range(len(labels) // options.batch_size)]
        coordinator.join()
        loss = sum(coordinator.fetch(losses)) / len(losses)
        time.sleep(max(0.0, started_s + options.epoch_seconds - time.monotonic()))
        checkpoints.save(epoch + 1)
        print(f"epoch {epoch + 1}/{options.epochs} loss {loss:.4f}", flush=True)
    servers = {name: len(addresses) for name, addresses in cluster.cluster_spec().as_dict().items()}
    digits.store_results(model, options.job_dir, strategy="parameter_server", servers=servers)


def training_step(strategy: Any, model: Any) -> Any:
    """Return what the coordinator hands out: a batch, its gradients, and their application."""

    @tf.function  # type: ignore[untyped-decorator]
    def step(batches: Any) -> Any:
        images, labels = next(batches)

        def replica_step() -> Any:
            with tf.GradientTape() as tape:
                loss = model.compute_loss(images, labels, model(images, training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        return strategy.run(replica_step)

    return step


if __name__ == "__main__":
    main()
