"""Train a digit classifier with ParameterServerStrategy: variables on the parameter servers, steps
on any free worker.

    python -m trainer.parameter_server --job-dir gs://BUCKET/tf_parameter_server

Every replica runs this module. The chief has the ClusterCoordinator and schedules steps. Workers
and parameter servers only serve, until Trainmaster stops them: the job ends when the chief exits
with status 0.

    lost replica        recovery
    worker              the other workers take its steps until it is back; no other replica exits
    parameter server    its variables are lost: the chief exits with status 1 and continues from
                        the last checkpoint
    chief               continues from the last checkpoint after its restart;
                        the servers keep running

Parameter servers write their own parts of a checkpoint, so all of them must be able to access the
job directory.
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
    tf.get_logger().setLevel("ERROR")  # every save is traced again, and TensorFlow warns of that
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
    if cluster.task_type in ("worker", "ps"):
        serve(cluster)
    else:
        wait_for_servers(cluster)
        coordinate(options, cluster)


def serve(cluster: Any) -> None:
    """Hold variables or run steps for the chief. Does not return."""
    os.environ["GRPC_FAIL_FAST"] = "use_caller"  # wait for a server that is being restarted
    server = tf.distribute.Server(
        cluster.cluster_spec(),
        job_name=cluster.task_type,
        task_index=cluster.task_id,
        protocol=cluster.rpc_layer,
    )
    print(f"{cluster.task_type} {cluster.task_id} serves", flush=True)
    server.join()


def wait_for_servers(cluster: Any) -> None:
    """Wait until all servers accept connections.

    The coordinator does not wait for a late one, such as a new VM.
    """
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
    """Train, evaluate, store."""
    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    (images, labels), _ = digits.load()
    with strategy.scope():
        model = digits.compiled_model()
        checkpoints = digits.Checkpoints(model, options.job_dir)
    epochs_done = checkpoints.restore()
    batches = iter(
        coordinator.create_per_worker_dataset(
            lambda: digits.endless(images, labels, options.batch_size)
        )
    )
    step = training_step(strategy, model)
    for epoch in range(epochs_done, options.epochs):
        started_s = time.monotonic()
        losses = [
            coordinator.schedule(step, args=(batches,))
            for _ in range(len(labels) // options.batch_size)
        ]
        coordinator.join()
        loss = sum(coordinator.fetch(losses)) / len(losses)
        time.sleep(max(0.0, started_s + options.epoch_seconds - time.monotonic()))
        checkpoints.save(epoch + 1)
        print(f"epoch {epoch + 1}/{options.epochs} loss {loss:.4f}", flush=True)
    servers = {name: len(addresses) for name, addresses in cluster.cluster_spec().as_dict().items()}
    digits.store_results(model, options.job_dir, strategy="parameter_server", servers=servers)


def training_step(strategy: Any, model: Any) -> Any:
    """Return the function that the coordinator schedules: it computes a batch's gradients and
    applies them.
    """

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
