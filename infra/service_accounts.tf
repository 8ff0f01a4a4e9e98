# Nobody uses a default account, and no account has a key file.

resource "google_service_account" "function" {
  for_each     = local.functions
  account_id   = "trainmaster-${replace(each.key, "_", "-")}"
  display_name = "Trainmaster function ${each.key}"

  depends_on = [google_project_service.this]
}

resource "google_service_account" "worker" {
  account_id   = "trainmaster-worker"
  display_name = "Trainmaster: what training VMs and TPU nodes run as"

  depends_on = [google_project_service.this]
}

resource "google_service_account" "pusher" {
  account_id   = "trainmaster-pusher"
  display_name = "Trainmaster: as which Pub/Sub calls the functions"

  depends_on = [google_project_service.this]
}

resource "google_service_account" "builder" {
  account_id   = "trainmaster-builder"
  display_name = "Trainmaster: as which Cloud Build builds the functions"

  depends_on = [google_project_service.this]
}

# Pub/Sub signs its calls as the pusher.
resource "google_service_account_iam_member" "pubsub_signs_as_pusher" {
  service_account_id = google_service_account.pusher.name
  role               = "roles/iam.serviceAccountTokenCreator"
  member             = local.pubsub_agent
}
