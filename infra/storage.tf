# Job files below jobs/, packages, job directories.
resource "google_storage_bucket" "this" {
  # checkov:skip=CKV_GCP_62:Who read what is in Cloud Audit Logs, where the project has data access logs on; log files in a bucket are their forerunner.
  name                        = "${var.project}-trainmaster"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = !var.keep_data

  versioning {
    enabled = true
  }

  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      days_since_noncurrent_time = 30
    }
  }

  depends_on = [google_project_service.this]
}

resource "google_storage_notification" "job_files" {
  bucket             = google_storage_bucket.this.name
  topic              = google_pubsub_topic.this["upload"].id
  payload_format     = "JSON_API_V1"
  event_types        = ["OBJECT_FINALIZE"]
  object_name_prefix = "jobs/"

  depends_on = [google_pubsub_topic_iam_member.upload_by_storage]
}

data "google_storage_project_service_account" "this" {
  depends_on = [google_project_service.this]
}

resource "google_pubsub_topic_iam_member" "upload_by_storage" {
  topic  = google_pubsub_topic.this["upload"].id
  role   = "roles/pubsub.publisher"
  member = data.google_storage_project_service_account.this.member
}

# What functions are deployed from.
resource "google_storage_bucket" "stage" {
  # checkov:skip=CKV_GCP_62:Nobody reads it but Cloud Build, whose own log says what it built.
  # checkov:skip=CKV_GCP_78:An archive's name is made of its content: none is ever written over.
  name                        = "${var.project}-trainmaster-stage"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = true

  depends_on = [google_project_service.this]
}

resource "google_storage_bucket_object" "source" {
  for_each = local.functions
  bucket   = google_storage_bucket.stage.name
  # Another content is another name, so that a changed archive is a changed function.
  name   = "${each.key}-${filemd5("${var.stage}/${each.key}.zip")}.zip"
  source = "${var.stage}/${each.key}.zip"
}
