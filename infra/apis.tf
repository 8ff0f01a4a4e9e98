locals {
  # Something here calls each of them (tests/infra/test_apis.py). aiplatform is in the list because the function `api` checks
  # Vertex AI's permissions. It is unconfirmed whether Cloud Resource Manager reports permissions of a disabled API.
  apis = [
    "aiplatform", "artifactregistry", "billingbudgets", "cloudbuild", "cloudfunctions", "cloudresourcemanager",
    "cloudscheduler", "compute", "firestore", "iam", "logging", "monitoring", "orgpolicy", "pubsub", "run", "secretmanager",
    "storage", "tpu",
  ]

  # `gcloud compute ssh` calls them.
  ssh_apis = length(var.ssh_users) > 0 ? ["iap", "oslogin"] : []
}

# The APIs stay enabled when Trainmaster is removed, because other systems in the project may need them.
resource "google_project_service" "this" {
  for_each           = toset(concat(local.apis, local.ssh_apis))
  service            = "${each.key}.googleapis.com"
  disable_on_destroy = false
}
