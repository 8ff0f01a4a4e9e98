"""`make smoke`: try one installation from the first apply to the last delete, and compare it with
the documentation.

    install ──► steps: jobs, failures, clients ──► assumptions: expected and seen ──► remove
    everything

On Google Cloud, Terraform installs into a state of its own (`terraform`). On this machine, the
steps run on a realistic local stack (`local_stack`). `steps` are functions over the ports in
`world`. They note facts, which `findings` compares with the table in `assumptions`.
"""
