# Compute Engine's system events: a VM was preempted or lost. They usually arrive seconds after the event.
resource "google_logging_project_sink" "system_events" {
  name                   = "trainmaster-system-events"
  destination            = "pubsub.googleapis.com/${google_pubsub_topic.this["system-events"].id}"
  unique_writer_identity = true
  filter                 = "logName:\"cloudaudit.googleapis.com%2Fsystem_event\" resource.type=\"gce_instance\" protoPayload.resourceName:\"/instances/tm-\""
}

resource "google_pubsub_topic_iam_member" "system_events_by_sink" {
  topic  = google_pubsub_topic.this["system-events"].id
  role   = "roles/pubsub.publisher"
  member = google_logging_project_sink.system_events.writer_identity
}
