locals {
  apis = [
    "artifactregistry", "billingbudgets", "cloudbuild", "cloudfunctions", "cloudresourcemanager", "cloudscheduler",
    "compute", "firestore", "iam", "iamcredentials", "logging", "monitoring", "pubsub", "run", "secretmanager",
    "storage", "tpu",
  ]
}

# Left on when Trainmaster is removed: others in the project may need them.
resource "google_project_service" "this" {
  for_each           = toset(local.apis)
  service            = "${each.key}.googleapis.com"
  disable_on_destroy = false
}
