# VMs have no external addresses. They use Google's APIs through private access. Replicas accept connections from replicas only.

locals {
  network    = try(var.network.network, google_compute_network.this[0].id)
  subnetwork = try(var.network.subnetwork, "projects/${var.project}/regions/{region}/subnetworks/${local.name}-{region}")

  worker_regions = coalesce(var.worker_regions, { (var.region) = "10.128.0.0/20" })
  # The region of commands that name none: that of the data, if jobs may run there.
  first_region = contains(keys(local.worker_regions), var.region) ? var.region : keys(local.worker_regions)[0]

  own_regions = var.network == null ? local.worker_regions : {}
}

resource "google_compute_network" "this" {
  count                   = var.network == null ? 1 : 0
  name                    = local.name
  auto_create_subnetworks = false
  mtu                     = 8896 # large frames for the exchange of gradients

  depends_on = [time_sleep.apis]
}

moved {
  from = google_compute_network.this
  to   = google_compute_network.this[0]
}

resource "google_compute_subnetwork" "this" {
  for_each                 = local.own_regions
  name                     = "${local.name}-${each.key}"
  region                   = each.key
  network                  = google_compute_network.this[0].id
  ip_cidr_range            = each.value
  private_ip_google_access = true

  log_config {
    aggregation_interval = "INTERVAL_10_MIN"
    flow_sampling        = 0.1
    metadata             = "INCLUDE_ALL_METADATA"
  }
}

# The rule selects by address instead of by service account: a job may have its own account, and the hosts of a TPU slice are
# in a project of Google (unconfirmed whether a rule by account would match them). Only workers are in this network.
resource "google_compute_firewall" "between_replicas" {
  count         = var.network == null ? 1 : 0
  name          = "${local.name}-between-replicas"
  network       = google_compute_network.this[0].name
  description   = "Replicas connect to each other on any port, because frameworks choose their own ports."
  source_ranges = values(local.worker_regions)

  allow {
    protocol = "tcp"
  }
  allow {
    protocol = "udp"
  }
  allow {
    protocol = "icmp"
  }
}

moved {
  from = google_compute_firewall.between_replicas
  to   = google_compute_firewall.between_replicas[0]
}

resource "google_compute_router" "this" {
  for_each = var.nat ? local.own_regions : {}
  name     = "${local.name}-${each.key}"
  region   = each.key
  network  = google_compute_network.this[0].id
}

resource "google_compute_router_nat" "this" {
  for_each                           = google_compute_router.this
  name                               = each.value.name
  router                             = each.value.name
  region                             = each.value.region
  nat_ip_allocate_option             = "AUTO_ONLY"
  source_subnetwork_ip_ranges_to_nat = "ALL_SUBNETWORKS_ALL_IP_RANGES"
}

# Separate networks for the jobs of some service accounts: only VMs in the same network can reach these jobs' VMs. A job of another
# account may request the network (its field `network`), so the firewall also selects by account.
locals {
  walled_subnetworks = merge([
    for name, wall in var.walled_accounts : {
      for region, range in wall.ranges : "${name}-${region}" => { wall = name, region = region, range = range }
    }
  ]...)
}

resource "google_compute_network" "walled" {
  for_each                = var.walled_accounts
  name                    = "${local.name}-${each.key}"
  auto_create_subnetworks = false
  mtu                     = 8896

  depends_on = [time_sleep.apis]
}

resource "google_compute_subnetwork" "walled" {
  for_each                 = local.walled_subnetworks
  name                     = "${local.name}-${each.key}"
  region                   = each.value.region
  network                  = google_compute_network.walled[each.value.wall].id
  ip_cidr_range            = each.value.range
  private_ip_google_access = true

  log_config {
    aggregation_interval = "INTERVAL_10_MIN"
    flow_sampling        = 0.1
    metadata             = "INCLUDE_ALL_METADATA"
  }
}

resource "google_compute_firewall" "walled" {
  for_each                = var.walled_accounts
  name                    = "${local.name}-${each.key}"
  network                 = google_compute_network.walled[each.key].name
  description             = "VMs of one service account connect to each other on any port."
  source_service_accounts = each.value.tpu ? null : [each.value.service_account]
  target_service_accounts = each.value.tpu ? null : [each.value.service_account]
  source_ranges           = each.value.tpu ? values(each.value.ranges) : null

  allow {
    protocol = "tcp"
  }
  allow {
    protocol = "udp"
  }
  allow {
    protocol = "icmp"
  }
}

resource "google_compute_router" "walled" {
  for_each = var.nat ? local.walled_subnetworks : {}
  name     = "${local.name}-${each.key}"
  region   = each.value.region
  network  = google_compute_network.walled[each.value.wall].id
}

resource "google_compute_router_nat" "walled" {
  for_each                           = google_compute_router.walled
  name                               = each.value.name
  router                             = each.value.name
  region                             = each.value.region
  nat_ip_allocate_option             = "AUTO_ONLY"
  source_subnetwork_ip_ranges_to_nat = "ALL_SUBNETWORKS_ALL_IP_RANGES"
}

# Jobs in another region read their packages, and write their checkpoints, across regions: that costs egress, and the data leaves `region`.
check "regions" {
  assert {
    condition     = contains(keys(local.worker_regions), var.region)
    error_message = "Jobs run in ${join(", ", keys(local.worker_regions))}, but the bucket and the database are in ${var.region}: packages and checkpoints cross regions, which is slower and charged. Add ${var.region} to worker_regions, or omit worker_regions."
  }
}
