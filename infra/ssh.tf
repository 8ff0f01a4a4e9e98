# Shells on training VMs, for `trainmaster ssh`. Off by default: without `ssh_users` nothing here exists. docs/ssh.md

locals {
  training_vms_only = "resource.type != 'compute.googleapis.com/Instance' || resource.name.extract('/instances/{name}').startsWith('${local.vms}')"
  ssh_networks = merge(
    { for network in google_compute_network.this : local.name => network.name },
    { for name, network in google_compute_network.walled : network.name => network.name },
  )
}

# 35.235.240.0/20 is Identity-Aware Proxy. The rule has no target: only workers are in these networks, and it is unconfirmed whether a
# rule by account would match the hosts of a TPU slice.
resource "google_compute_firewall" "ssh" {
  for_each      = length(var.ssh_users) > 0 ? local.ssh_networks : {}
  name          = "${each.key}-ssh"
  network       = each.value
  description   = "Identity-Aware Proxy opens SSH connections of permitted users to workers."
  source_ranges = ["35.235.240.0/20"]

  allow {
    protocol = "tcp"
    ports    = ["22"]
  }
}

resource "google_project_iam_member" "ssh_tunnel" {
  for_each = var.ssh_users
  project  = var.project
  role     = "roles/iap.tunnelResourceAccessor"
  member   = each.value

  condition {
    title      = "SSH only${local.of_installation}"
    expression = "destination.port == 22"
  }

  depends_on = [time_sleep.apis]
}

resource "google_project_iam_member" "ssh_login" {
  for_each = var.ssh_users
  project  = var.project
  role     = google_project_iam_custom_role.ssh_user[0].id
  member   = each.value

  # As for `provision` (iam.tf): other VMs of the project are not Trainmaster's. One without a service account would need no further grant.
  condition {
    title      = "training VMs only"
    expression = local.training_vms_only
  }

  depends_on = [time_sleep.apis]
}

resource "google_project_iam_member" "ssh_sudo" {
  for_each = var.ssh_sudo ? var.ssh_users : toset([])
  project  = var.project
  role     = google_project_iam_custom_role.ssh_administrator[0].id
  member   = each.value

  condition {
    title      = "training VMs only"
    expression = local.training_vms_only
  }

  depends_on = [time_sleep.apis]
}

# OS Login requires this grant for VMs with a service account, because every user of such a VM can act as that account.
resource "google_service_account_iam_member" "ssh_acts_as_worker" {
  for_each           = var.ssh_users
  service_account_id = google_service_account.worker.name
  role               = "roles/iam.serviceAccountUser"
  member             = each.value

  depends_on = [time_sleep.identities]
}

# `trainmaster ssh` finds the TPU node of a replica and its hosts.
resource "google_project_iam_member" "ssh_tpu" {
  for_each = var.tpu ? var.ssh_users : toset([])
  project  = var.project
  role     = google_project_iam_custom_role.tpu_reader[0].id
  member   = each.value

  depends_on = [time_sleep.apis]
}
