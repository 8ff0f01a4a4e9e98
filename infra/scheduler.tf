# 43,200 calls a month are about 2 % of the free quota.
resource "google_cloud_scheduler_job" "sweep" {
  name        = "trainmaster-sweep"
  region      = var.region
  description = "Handles everything that no event reported: lost VMs, deadlines, pending effects."
  schedule    = "* * * * *"
  time_zone   = "Etc/UTC"

  pubsub_target {
    topic_name = google_pubsub_topic.this["sweep"].id
    data       = base64encode("{}")
  }

  depends_on = [google_project_service.this]
}
