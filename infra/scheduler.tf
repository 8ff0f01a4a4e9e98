# Costs nothing to speak of: 43,200 calls a month, a fiftieth of what is free.
resource "google_cloud_scheduler_job" "sweep" {
  name        = "trainmaster-sweep"
  region      = var.region
  description = "Finds what no event reported: lost VMs, deadlines, effects desired and not done."
  schedule    = "* * * * *"
  time_zone   = "Etc/UTC"

  pubsub_target {
    topic_name = google_pubsub_topic.this["sweep"].id
    data       = base64encode("{}")
  }

  depends_on = [google_project_service.this]
}
