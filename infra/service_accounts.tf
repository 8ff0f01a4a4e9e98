# Default service accounts are not used, and no account has a key file.

resource "google_service_account" "function" {
  for_each     = local.functions
  account_id   = "${local.name}-${replace(each.key, "_", "-")}"
  display_name = "${local.title} function ${each.key}"

  depends_on = [time_sleep.apis]
}

resource "google_service_account" "worker" {
  account_id   = "${local.name}-worker"
  display_name = "${local.title}: runs training VMs and TPU nodes"

  depends_on = [time_sleep.apis]
}

# It has no role, and nothing runs as it: its IAM policy says who may call the API (docs/decisions/0008-the-old-services-api.md).
resource "google_service_account" "callers" {
  account_id   = "${local.name}-callers"
  display_name = "${local.title}: who may act as it may change jobs by the API; who may read it may read them"

  depends_on = [time_sleep.apis]
}

resource "google_service_account" "pusher" {
  account_id   = "${local.name}-pusher"
  display_name = "${local.title}: used by Pub/Sub to call the functions"

  depends_on = [time_sleep.apis]
}

resource "google_service_account" "builder" {
  account_id   = "${local.name}-builder"
  display_name = "${local.title}: used by Cloud Build to build the functions"

  depends_on = [time_sleep.apis]
}

resource "google_service_account" "tests" {
  account_id   = "${local.name}-tests"
  display_name = "${local.title}: used by Cloud Build to test commits"

  depends_on = [time_sleep.apis]
}

# Pub/Sub signs the identity tokens of its calls as the pusher.
resource "google_service_account_iam_member" "pubsub_signs_as_pusher" {
  service_account_id = google_service_account.pusher.name
  role               = "roles/iam.serviceAccountTokenCreator"
  member             = local.pubsub_agent

  depends_on = [time_sleep.identities]
}
