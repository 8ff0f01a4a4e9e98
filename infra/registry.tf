# Users store their training images here.
resource "google_artifact_registry_repository" "this" {
  # checkov:skip=CKV_GCP_84:Google's keys encrypt it. A customer-managed key costs money while nothing runs, and its loss would lose the images.
  location      = var.region
  repository_id = "trainmaster"
  format        = "DOCKER"
  description   = "Training containers"

  depends_on = [google_project_service.this]
}
