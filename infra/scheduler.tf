# Each tick calls `sweep`, which calls `provision`: 86,400 calls a month, about 4 % of the free quota (infra/README.md).
resource "google_cloud_scheduler_job" "sweep" {
  name        = "${local.name}-sweep"
  region      = var.region
  description = "Handles everything that no event reported: lost VMs, deadlines, pending effects."
  schedule    = "* * * * *"
  time_zone   = "Etc/UTC"

  pubsub_target {
    topic_name = google_pubsub_topic.this["sweep"].id
    data       = base64encode("{}")
  }

  depends_on = [time_sleep.apis]
}
