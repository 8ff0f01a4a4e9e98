# Job files (below jobs/), packages and job directories.
resource "google_storage_bucket" "this" {
  # checkov:skip=CKV_GCP_62:Cloud Audit Logs record access if the project enables data access logs. They replace log files in a bucket.
  name                        = "${var.project}-${local.name}"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = !var.keep_data

  dynamic "encryption" {
    for_each = var.kms_key[*]
    content {
      default_kms_key_name = encryption.value
    }
  }

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

  depends_on = [time_sleep.apis]
}

resource "google_storage_notification" "job_files" {
  bucket             = google_storage_bucket.this.name
  topic              = google_pubsub_topic.this["upload"].id
  payload_format     = "JSON_API_V1"
  event_types        = ["OBJECT_FINALIZE"]
  object_name_prefix = "jobs/"

  depends_on = [time_sleep.grants]
}

data "google_storage_project_service_account" "this" {
  depends_on = [time_sleep.apis]
}

resource "google_pubsub_topic_iam_member" "upload_by_storage" {
  topic  = google_pubsub_topic.this["upload"].id
  role   = "roles/pubsub.publisher"
  member = data.google_storage_project_service_account.this.member

  depends_on = [time_sleep.identities]
}

# The source archives of the functions, the agent and the built-in algorithms, which VMs download. Workers cannot write here.
resource "google_storage_bucket" "stage" {
  # checkov:skip=CKV_GCP_62:Its objects are this release's programs. Cloud Build logs its builds, and VMs log the agent they run.
  # checkov:skip=CKV_GCP_78:An archive's name contains a hash of its content, so that objects are never overwritten.
  name                        = "${var.project}-${local.name}-stage"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = true

  dynamic "encryption" {
    for_each = var.kms_key[*]
    content {
      default_kms_key_name = encryption.value
    }
  }

  depends_on = [time_sleep.apis]
}

resource "google_storage_bucket_object" "source" {
  for_each = local.functions
  bucket   = google_storage_bucket.stage.name
  # The name contains a hash of the content, so that a changed archive redeploys its function.
  name   = "${each.key}-${filemd5("${var.stage}/${each.key}.zip")}.zip"
  source = "${var.stage}/${each.key}.zip"

  lifecycle {
    precondition {
      condition     = fileexists("${var.stage}/${each.key}.zip")
      error_message = "There is no ${var.stage}/${each.key}.zip: run `make stage` in the folder above infra/ first."
    }
  }
}

# A VM runs the agent only if its content has the hash in its name. An older agent stays after an upgrade, because VMs that an
# earlier release requested may still download it.
resource "google_storage_bucket_object" "agent" {
  bucket          = google_storage_bucket.stage.name
  name            = "agent/${filesha256("${var.stage}/agent.zip")}.zip"
  source          = "${var.stage}/agent.zip"
  deletion_policy = "ABANDON"
}

# The agent installs the package only if its content has the hash in its name. Running jobs name older packages.
resource "google_storage_bucket_object" "algorithms" {
  bucket          = google_storage_bucket.stage.name
  name            = "algorithms/${filesha256("${var.stage}/${local.algorithms}")}/${local.algorithms}"
  source          = "${var.stage}/${local.algorithms}"
  deletion_policy = "ABANDON"
}

# A VM runs gcsfuse only if its content has the hash in its name.
resource "google_storage_bucket_object" "gcsfuse" {
  count           = var.gcsfuse == null ? 0 : 1
  bucket          = google_storage_bucket.stage.name
  name            = "tools/${var.gcsfuse.sha256}/gcsfuse"
  source          = var.gcsfuse.file
  deletion_policy = "ABANDON"

  lifecycle {
    precondition {
      condition     = filesha256(var.gcsfuse.file) == var.gcsfuse.sha256
      error_message = "gcsfuse.file does not have the SHA-256 hash gcsfuse.sha256. infra/README.md says where both come from."
    }
  }
}

locals {
  algorithms = "trainmaster_algorithms-1.0-py3-none-any.whl"
}
