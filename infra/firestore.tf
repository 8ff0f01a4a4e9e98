resource "google_firestore_database" "this" {
  name                              = "(default)"
  location_id                       = var.region
  type                              = "FIRESTORE_NATIVE"
  concurrency_mode                  = "PESSIMISTIC"
  delete_protection_state           = var.keep_data ? "DELETE_PROTECTION_ENABLED" : "DELETE_PROTECTION_DISABLED"
  deletion_policy                   = "DELETE"
  point_in_time_recovery_enablement = "POINT_IN_TIME_RECOVERY_DISABLED"

  depends_on = [google_project_service.this]
}

# Queries for replicas filter by attempt and one other property.
resource "google_firestore_index" "replicas" {
  for_each   = toset(["ever_ready", "ever_lost"])
  database   = google_firestore_database.this.name
  collection = "replicas"

  fields {
    field_path = "attempt"
    order      = "ASCENDING"
  }
  fields {
    field_path = each.key
    order      = "ASCENDING"
  }
}

# The sweep queries the ledgers of all jobs for pending entries.
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

# Long texts that no query filters by. Their indexes would cost more than the documents.
resource "google_firestore_field" "unindexed" {
  for_each = {
    spec     = { collection = "jobs", field = "spec_json" }
    plan     = { collection = "jobs", field = "plan" }
    tuning   = { collection = "jobs", field = "tuning" }
    event    = { collection = "ledger", field = "event" }
    decision = { collection = "ledger", field = "decision" }
  }
  database   = google_firestore_database.this.name
  collection = each.value.collection
  field      = each.value.field

  index_config {}
}
