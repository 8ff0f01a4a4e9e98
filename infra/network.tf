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

resource "google_compute_firewall" "between_replicas" {
  name                    = "trainmaster-between-replicas"
  network                 = google_compute_network.this.name
  description             = "Replicas of jobs talk to each other on any port: frameworks choose their own."
  source_service_accounts = [google_service_account.worker.email]
  target_service_accounts = [google_service_account.worker.email]

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
