locals {
  # Each is called by something here: tests/infra/test_apis.py. Vertex AI's own, because the API of this installation asks for
  # its permissions; unconfirmed whether Cloud Resource Manager tells of permissions of an API that is off.
  apis = [
    "aiplatform", "artifactregistry", "billingbudgets", "cloudbuild", "cloudfunctions", "cloudresourcemanager",
    "cloudscheduler", "compute", "firestore", "iam", "logging", "monitoring", "pubsub", "run", "secretmanager", "storage",
    "tpu",
  ]
}

# Left on when Trainmaster is removed: others in the project may need them.
resource "google_project_service" "this" {
  for_each           = toset(local.apis)
  service            = "${each.key}.googleapis.com"
  disable_on_destroy = false
}
