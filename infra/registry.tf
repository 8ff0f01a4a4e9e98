# For users' own training images.
resource "google_artifact_registry_repository" "this" {
  # checkov:skip=CKV_GCP_84:Google's own keys encrypt it; a key of one's own costs money while nothing runs, and a lost key loses the images.
  location      = var.region
  repository_id = "trainmaster"
  format        = "DOCKER"
  description   = "Training containers"

  depends_on = [google_project_service.this]
}
