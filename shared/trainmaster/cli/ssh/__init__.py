"""`trainmaster ssh`: a shell or a command on the VM of a replica.

target          the VM of a replica, from the stored job; or why it has none now
remote_command  the shell command that runs there
google_cloud    gcloud, Identity-Aware Proxy and OS Login
local_stack     the processes of an emulated VM
"""
