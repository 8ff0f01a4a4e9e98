# For users' own training images.
resource "google_artifact_registry_repository" "this" {
  location      = var.region
  repository_id = "trainmaster"
  format        = "DOCKER"
  description   = "Training containers"

  depends_on = [google_project_service.this]
}
