# VMs have no addresses outside; Google's APIs are reached privately, and replicas reach each other and nobody else.

resource "google_compute_network" "this" {
  name                    = "trainmaster"
  auto_create_subnetworks = false
  mtu                     = 8896 # large frames: gradients are large

  depends_on = [google_project_service.this]
}

resource "google_compute_subnetwork" "this" {
  for_each                 = var.worker_regions
  name                     = "trainmaster-${each.key}"
  region                   = each.key
  network                  = google_compute_network.this.id
  ip_cidr_range            = each.value
  private_ip_google_access = true

  log_config {
    aggregation_interval = "INTERVAL_10_MIN"
    flow_sampling        = 0.1
    metadata             = "INCLUDE_ALL_METADATA"
  }
}

# By address, not by account: a job may have an account of its own, and the hosts of a TPU slice are in a project of
# Google's (unconfirmed whether a rule by accounts would find them). Nothing but workers is in this network.
resource "google_compute_firewall" "between_replicas" {
  name          = "trainmaster-between-replicas"
  network       = google_compute_network.this.name
  description   = "Replicas of jobs talk to each other on any port: frameworks choose their own."
  source_ranges = values(var.worker_regions)

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

resource "google_compute_router" "this" {
  for_each = var.nat ? var.worker_regions : {}
  name     = "trainmaster-${each.key}"
  region   = each.key
  network  = google_compute_network.this.id
}

resource "google_compute_router_nat" "this" {
  for_each                           = google_compute_router.this
  name                               = each.value.name
  router                             = each.value.name
  region                             = each.value.region
  nat_ip_allocate_option             = "AUTO_ONLY"
  source_subnetwork_ip_ranges_to_nat = "ALL_SUBNETWORKS_ALL_IP_RANGES"
}
