resource "google_firestore_database" "this" {
  name                              = local.database
  location_id                       = var.region
  type                              = "FIRESTORE_NATIVE"
  concurrency_mode                  = "PESSIMISTIC"
  delete_protection_state           = var.keep_data ? "DELETE_PROTECTION_ENABLED" : "DELETE_PROTECTION_DISABLED"
  deletion_policy                   = "DELETE"
  point_in_time_recovery_enablement = "POINT_IN_TIME_RECOVERY_${var.point_in_time_recovery ? "ENABLED" : "DISABLED"}"

  dynamic "cmek_config" {
    for_each = var.kms_key[*]
    content {
      kms_key_name = cmek_config.value
    }
  }

  depends_on = [time_sleep.apis]
}

# Replicas are counted by attempt and state, and ready ones that have a VM of the gang's current zone.
resource "google_firestore_index" "replicas" {
  for_each = {
    state = ["attempt", "state"]
    ready = ["attempt", "ever_ready", "vm_generation"]
    round = ["ready_for", "vm_generation"]
  }
  database   = google_firestore_database.this.name
  collection = "replicas"

  dynamic "fields" {
    for_each = each.value
    content {
      field_path = fields.value
      order      = "ASCENDING"
    }
  }
}

# A verdict reads the first ends of members in one round of a synchronous job.
resource "google_firestore_index" "round_ends" {
  database   = google_firestore_database.this.name
  collection = "ledger"

  dynamic "fields" {
    for_each = ["round", "rank", "ended_at"]
    content {
      field_path = fields.value
      order      = "ASCENDING"
    }
  }
}

# The console counts jobs by state, with and without a label. Trials and deleted jobs, which have these two fields, do not count.
resource "google_firestore_index" "jobs" {
  for_each   = { states = [], labels = ["labels"] }
  database   = google_firestore_database.this.name
  collection = "jobs"

  dynamic "fields" {
    for_each = each.value
    content {
      field_path   = fields.value
      array_config = "CONTAINS"
    }
  }
  dynamic "fields" {
    for_each = ["deleted_at", "trial_of", "state"]
    content {
      field_path = fields.value
      order      = "ASCENDING"
    }
  }
}

# Lists read the jobs with a name, of a user, with a label or in a state, the newest first, without reading others. The entries of a job take
# about 1 KiB of storage; writing them costs nothing.
resource "google_firestore_index" "job_lists" {
  for_each   = { names = "CONTAINS", owner = null, labels = "CONTAINS", state = null }
  database   = google_firestore_database.this.name
  collection = "jobs"

  fields {
    field_path   = each.key
    order        = each.value == null ? "ASCENDING" : null
    array_config = each.value
  }
  fields {
    field_path = "created_at"
    order      = "DESCENDING"
  }
}

# The sweep queries the ledgers of all jobs for pending entries and for open notifications.
resource "google_firestore_field" "pending" {
  database   = google_firestore_database.this.name
  collection = "ledger"
  field      = "is_pending"

  index_config {
    indexes {
      order       = "ASCENDING"
      query_scope = "COLLECTION"
    }
    indexes {
      order       = "ASCENDING"
      query_scope = "COLLECTION_GROUP"
    }
  }
}

# Lists of jobs query the replicas of many jobs for those that keep failing.
resource "google_firestore_field" "failing" {
  database   = google_firestore_database.this.name
  collection = "replicas"
  field      = "failing_in"

  index_config {
    indexes {
      order       = "ASCENDING"
      query_scope = "COLLECTION_GROUP"
    }
  }
}

# Fields that no query filters by: long texts, whose indexes would cost more than the documents, and a time that only grows.
resource "google_firestore_field" "unindexed" {
  for_each = {
    spec     = { collection = "jobs", field = "spec_json" }
    plan     = { collection = "jobs", field = "plan" }
    tuning   = { collection = "jobs", field = "tuning" }
    event    = { collection = "ledger", field = "event" }
    decision = { collection = "ledger", field = "decision" }
    order    = { collection = "ledger", field = "committed_at" }
    failing  = { collection = "replicas", field = "failing" }
  }
  database   = google_firestore_database.this.name
  collection = each.value.collection
  field      = each.value.field

  index_config {}
}

# Documents that no decision needs any more, such as replicas of earlier attempts. Nothing depends on when they are deleted. The field
# has no index: times that only grow would limit the rate of writes.
resource "google_firestore_field" "expiry" {
  for_each = {
    replicas   = "expire_at"
    ledger     = "expire_at"
    rejections = "expire_at"
    capacity   = "expire_at"
    leases     = "expires_at"
  }
  database   = google_firestore_database.this.name
  collection = each.key
  field      = each.value

  index_config {}
  ttl_config {}
}

resource "google_firestore_field" "open_notifications" {
  database   = google_firestore_database.this.name
  collection = "ledger"
  field      = "is_notification_pending"

  index_config {
    indexes {
      order       = "ASCENDING"
      query_scope = "COLLECTION_GROUP"
    }
  }
}
